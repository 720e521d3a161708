"""The C text of a kernel, whatever kind of chip it is for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Parameter:
    """One tensor argument of the C function.

    `in_place`: the chip uses the caller's array itself. `packed`: `NAME_prepacked` takes what
    `NAME_pack_TENSOR` made of it; and the array too, where that is in place as well. `align`: the
    bytes of which the array must begin at a multiple.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    constant: bool
    in_place: bool
    packed: bool
    align: int = 1


@dataclass(frozen=True)
class CSource:
    """The text of one kernel.

    `function`: the function's name. `c`: for the chip, against the vendor's runtime, or in the
    language of a processor. `header`: declares the functions. `model`: a standalone file with the
    same functions against the chip's model; "" where no units are to be modelled. `suffix`: of the
    file of `c`. `foreign`: a spec that is not trusted, and whose text stands in what would run on
    this machine; "" where none does.
    """

    function: str
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    c: str
    header: str
    model: str = ""
    suffix: str = ".c"
    foreign: str = ""

    @property
    def files(self) -> dict[str, str]:
        """Text for the chip, its header, and the same on the C model where there is one."""
        texts = {self.suffix: self.c, ".h": self.header, "_model.c": self.model}
        return {f"{self.function}{end}": text for end, text in texts.items() if text}
