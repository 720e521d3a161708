"""The constants of a network as C arrays, each distinct one once."""

from __future__ import annotations

from collections.abc import Sequence

from hwgen.codegen.c_names import C_TYPES
from hwgen.model.code import run_code
from hwgen.model.numeric import Array
from hwgen.model.weights import Constant, weights_file
from hwgen.network.byte_order import little_endian
from hwgen.network.kernels import Argument
from hwgen.network.steps import Step
from hwgen.spec.hardware import HardwareSpec


class Weights:
    """The arrays that kernels take for constants, packed as each kernel reads them."""

    def __init__(self, name: str, steps: Sequence[Step], hardware: HardwareSpec) -> None:
        self._name = name
        self._found: dict[tuple[str, bytes], Constant] = {}
        self._names: dict[tuple[str, bytes], str] = {}
        self._of: dict[tuple[int, Argument], str] = {}
        self._align = 1
        for step in steps:
            known = dict(step.layer.constants)
            if step.kernel.once is not None:
                known |= run_code(step.kernel.once, hardware, known).outputs
            for argument in step.kernel.arguments:
                if argument.tensor in known:
                    self._add(step, argument, known[argument.tensor])

    def _add(self, step: Step, argument: Argument, given: Array) -> None:
        dtype, values = argument.packed(given)
        key = dtype, little_endian(values, dtype)
        if key not in self._found:
            self._names[key] = f"{self._name}_w{len(self._found)}"
            declared = f"const {C_TYPES[dtype]} {self._names[key]}[{values.size}]"
            self._found[key] = Constant(declared, dtype, values)
        self._of[step.number, argument] = self._names[key]
        self._align = max(self._align, argument.align)

    def of(self, step: Step, argument: Argument) -> str:
        """The name of the array for an argument of a step's kernel."""
        return self._of[step.number, argument]

    @property
    def declarations(self) -> list[str]:
        """Of all arrays."""
        return [c.declaration for c in self._found.values()]

    @property
    def bytes(self) -> int:
        """Of all arrays."""
        return sum(c.values.nbytes for c in self._found.values())

    def files(self, summary: str) -> dict[str, str]:
        """The file that defines them, where there are any.

        Raises:
            HwgenError: H043 a value that no C constant has.
        """
        if not self._found:
            return {}
        text = weights_file(self._name, summary, tuple(self._found.values()), self._align)
        return {f"{self._name}_weights.c": text}
