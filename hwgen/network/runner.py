"""A network on the machine that hwgen runs on: its emitted folder compiled, or layer by layer."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwgen.codegen.firmware_build import MODEL_FOLDER, STUB_FOLDER
from hwgen.errors import HwgenError
from hwgen.model.c_compiler import load_library
from hwgen.model.compiled import FLAGS, aligned, refuse_foreign
from hwgen.model.functional import run
from hwgen.model.images import unpack
from hwgen.model.native import FLAGS as NATIVE
from hwgen.model.numeric import STORAGE, Array
from hwgen.model.reference import run_reference
from hwgen.network.emit import Emitter
from hwgen.network.kernels import LayerKernel
from hwgen.network.steps import Plan, Step

Arrays = Mapping[str, Array]
Watch = Callable[[int, Array], None]
"""Called after each layer with its number and its output."""
Compute = Callable[[Step, Arrays], Arrays]
"""The outputs of a layer's kernel, for its inputs and constants."""

_OBSERVER = """\
static void (*after_layer)(int layer, const void *output);
void {name}_observe(void (*function)(int layer, const void *output))
{{
  after_layer = function;
}}
#define {name}_AFTER_LAYER(layer, output) \\
  do {{ if (after_layer) after_layer(layer, output); }} while (0)

"""


def unwatched(_: int, __: Array) -> None:
    """Look at no layer."""


class CRunner:
    """The emitted folder as a library: the same arena, calls and constants as on the chip, on the
    chip's C model where it has units."""

    def __init__(
        self, emitter: Emitter, files: Mapping[str, str], kernels: tuple[LayerKernel, ...]
    ) -> None:
        """Compile the folder.

        Raises:
            HwgenError: H703, H704, H707 as `compile_portable`.
        """
        for kernel in kernels:
            refuse_foreign(kernel.foreign)
        self._plan, name = emitter.plan, emitter.plan.name
        wanted = {f"{name}.c", f"{name}_weights.c", *(k.model for k in kernels)}
        wanted |= {source for k in kernels for source in k.sources}
        taken = {f: text for f, text in files.items() if f in wanted or f.endswith(".h")}
        taken[f"{name}.c"] = _OBSERVER.format(name=name) + taken[f"{name}.c"]
        flags = FLAGS if self._plan.hardware.units else NATIVE
        flags = (*flags, *(f"-I{folder}" for folder in (".", MODEL_FOLDER, STUB_FOLDER)))
        self._library = load_library(taken, name, flags)
        self._library[name].restype = ctypes.c_int

    def run(self, inputs: Arrays, watch: Watch = unwatched) -> dict[str, Array]:
        """The outputs by name.

        Raises:
            HwgenError: H702 where one of the model's checks fails.
        """
        plan, arena = self._plan, self._plan.arena
        room = aligned(np.zeros(max(arena.bytes, 1), np.uint8), arena.align)

        def place(tensor: str) -> Array:
            made = plan.graph.tensor[tensor]
            return np.ndarray(made.shape, STORAGE[made.dtype], room.data, plan.offset(tensor))

        for name, values in inputs.items():
            place(name)[...] = values

        def observe(number: int, _: Any) -> None:
            tensor = plan.graph.tensor[plan.steps[number].layer.output[1]]
            image = plan.kept.get(plan.buffer[tensor.name])
            if image is None:
                watch(number, np.copy(place(tensor.name)))
                return
            shape, dtype = image.outer + image.lanes, STORAGE[image.dtype]
            found = np.ndarray(shape, dtype, room.data, plan.offset(tensor.name))
            own = plan.steps[number].kernel.workload.tensor[image.tensor].shape
            watch(number, np.reshape(unpack(image, found, own), tensor.shape))

        function = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)(observe)
        watched = watch is not unwatched
        self._library[f"{plan.name}_observe"](function if watched else None)
        status: int = self._library[plan.name](ctypes.c_void_p(room.ctypes.data))
        if status:
            kernel = plan.steps[status - 1].kernel
            told = self._library[f"{kernel.name}_message"]
            told.restype = ctypes.c_char_p
            message = told()
            raise HwgenError(
                "H702",
                "the C model stopped",
                field=kernel.name,
                found=message.decode() if message else "",
                repair="report the model, the spec and this message",
            )
        return {name: np.copy(place(name)) for name in plan.graph.outputs}


@dataclass(frozen=True, eq=False)
class LayerByLayer:
    """Every layer by itself, in Python."""

    plan: Plan
    compute: Compute

    def run(self, inputs: Arrays, watch: Watch = unwatched) -> dict[str, Array]:
        """The outputs by name."""
        plan, tensor = self.plan, self.plan.graph.tensor
        held: dict[str, Array] = {plan.buffer[name]: values for name, values in inputs.items()}
        for step in plan.steps:
            shapes, layer = step.kernel.workload.tensor, step.layer
            given = {
                name: np.reshape(held[plan.buffer[of]], shapes[name].shape)
                for name, of in layer.inputs
            }
            made = self.compute(step, {**given, **layer.constants})[layer.output[0]]
            held[plan.buffer[layer.output[1]]] = made
            watch(step.number, np.reshape(made, tensor[layer.output[1]].shape))
        outputs = plan.graph.outputs
        return {n: np.reshape(held[plan.buffer[n]], tensor[n].shape) for n in outputs}


def reference(plan: Plan) -> LayerByLayer:
    """What the layers' statements say, without any chip."""
    return LayerByLayer(plan, lambda step, given: run_reference(step.kernel.workload, given))


def simulator(plan: Plan) -> LayerByLayer:
    """Each layer's program in the simulator, with every check of a run."""

    def compute(step: Step, given: Arrays) -> Arrays:
        shapes = {t.name: t.shape for t in step.kernel.workload.outputs}
        return run(step.kernel.program, plan.hardware, given, shapes=shapes).outputs

    return LayerByLayer(plan, compute)
