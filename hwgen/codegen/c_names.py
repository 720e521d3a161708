"""C identifiers and types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count

from hwgen.codegen.c_words import is_taken
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload

C_TYPES: dict[str, str] = {
    "int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t", "uint16": "uint16_t",
    "int32": "int32_t", "uint32": "uint32_t", "int64": "int64_t",
    "float16": "uint16_t", "bfloat16": "uint16_t", "float32": "float", "float64": "double",
}  # fmt: skip
"""The C type that holds one element; 16-bit floats travel as their bits."""


def immediate_type(dtype: str) -> str:
    """The C type of an immediate; a 16-bit float is a float with one of its values."""
    return "float" if dtype in ("float16", "bfloat16") else C_TYPES[dtype]


_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Reserved:
    """What a chip's text and headers take: `words`, and every name with one of `beginnings`."""

    words: frozenset[str] = frozenset()
    beginnings: tuple[str, ...] = ()

    def __contains__(self, name: str) -> bool:
        return name in self.words or name.startswith(self.beginnings)


class NameTable:
    """Gives each wanted name a C identifier that neither C, nor its library, nor the chip's text,
    nor anyone else has."""

    def __init__(self, reserved: Reserved = Reserved()) -> None:
        self._reserved = reserved
        self._taken: set[str] = set()
        self._given: dict[tuple[str, ...], str] = {}
        self._own = ""

    def __getitem__(self, wanted: str) -> str:
        return self._named((wanted,), wanted)

    def with_suffix(self, wanted: str, suffix: str) -> str:
        """The identifier of what belongs to `wanted`: like its own, then `_` and the suffix."""
        return self._named((wanted, suffix), f"{self[wanted]}_{suffix}")

    def _named(self, key: tuple[str, ...], wanted: str) -> str:
        if key not in self._given:
            self._given[key] = self.fresh(wanted)
        return self._given[key]

    def function(self, wanted: str) -> str:
        """The file's main function; names that begin as it does and go on with `_` are then those
        of the file's other functions alone."""
        name = self[wanted]
        self._own = f"{name}_"
        return name

    def fresh(self, wanted: str, *, own: bool = False) -> str:
        """A new identifier like `wanted`, even where `wanted` was given before; `own`: of one of
        the file's functions."""
        name = next(n for n in _alike(identifier(wanted)) if self._is_free(n, own=own))
        self._taken.add(name)
        return name

    def _is_free(self, name: str, *, own: bool) -> bool:
        foreign = bool(self._own) and name.startswith(self._own) and not own
        return not (foreign or name in self._taken or name in self._reserved or is_taken(name))


def _alike(name: str) -> Iterator[str]:
    """The name, and ever less readable ones like it."""
    for number in count():
        start = f"v{number}_" if number else ""
        for end in ("", "_", "__", "___"):
            yield f"{start}{name}{end}"


def kernel_name(workload: Workload, hardware: HardwareSpec) -> str:
    """What a kernel is called: workload and chip, then each parameter, size and data type that was
    set to another one than its file has. Two kernels that differ in these can be linked."""
    labels = [_label(n, v) for n, v in (*hardware.set_parameters, *workload.set_sizes)]
    labels += [f"{name}_{dtype}" for name, dtype in workload.set_dtypes]
    return identifier("_".join((workload.name, hardware.name, *labels)))


def _label(name: str, value: int) -> str:
    """`M16`; a number after a name that ends in a digit is set apart."""
    between = "" if name[-1].isalpha() else "_"
    return f"{name}{between}{'minus' if value < 0 else ''}{abs(value)}"


def identifier(wanted: str) -> str:
    """`wanted` with every character that C does not allow replaced."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", wanted)
    return name if name[:1].isalpha() else f"v{name}"


def words(texts: Iterable[str]) -> frozenset[str]:
    """Every identifier that occurs in C text or templates."""
    return frozenset(word for text in texts for word in _WORD.findall(text))


def comment(text: str) -> str:
    """`text` made safe inside a C comment."""
    text = text.replace("\\", "/")  # First: a star before one would end the comment.
    return text.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")


def indent(lines: Iterable[str], depth: int = 1) -> list[str]:
    """The lines, two blanks further right per level."""
    pad = "  " * depth
    return [pad + line if line and not line.startswith("#") else line for line in lines]
