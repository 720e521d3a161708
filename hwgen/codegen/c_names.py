"""C identifiers and types."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import isfinite

import numpy as np

_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """
    auto break case char const continue default do double else enum extern float for goto if
    inline int long register restrict return short signed sizeof static struct switch typedef
    union unsigned void volatile while _Bool _Complex _Imaginary
    asm bool catch class const_cast delete dynamic_cast explicit export false friend mutable
    namespace new operator private protected public reinterpret_cast static_cast template this
    throw true try typeid typename using virtual wchar_t and and_eq bitand bitor compl not
    not_eq or or_eq xor xor_eq alignas alignof char16_t char32_t constexpr decltype noexcept
    nullptr static_assert thread_local
    NULL EOF errno main malloc calloc realloc free memcpy memset memcmp memmove abort exit abs
    div rand size_t ptrdiff_t int8_t uint8_t int16_t uint16_t int32_t uint32_t int64_t uint64_t
    exp log sqrt tanh floor ceil round rint index status packed chip linux unix
    """,
    )
)
"""Words of C, C++ and of what the emitted files use from the standard library or for themselves."""

C_TYPES: dict[str, str] = {
    "int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t", "uint16": "uint16_t",
    "int32": "int32_t", "uint32": "uint32_t", "int64": "int64_t",
    "float16": "uint16_t", "bfloat16": "uint16_t", "float32": "float", "float64": "double",
}  # fmt: skip
"""The C type that holds one element; 16-bit floats travel as their bits."""


def immediate_type(dtype: str) -> str:
    """The C type of an immediate; a 16-bit float is a float with one of its values."""
    return "float" if dtype in ("float16", "bfloat16") else C_TYPES[dtype]


def immediate_text(value: int | float, dtype: str) -> str:
    """An immediate as C: an integer in decimal; a float in the fewest digits that a compiler reads
    back as the same bits."""
    if "float" not in dtype:
        return str(value)
    text = repr(float(value)) if dtype == "float64" else str(np.float32(value))
    if not isfinite(value):
        return text.replace("inf", "INFINITY")
    digits, e, exponent = text.partition("e")
    number = f"{digits if '.' in digits else f'{digits}.0'}{e}{exponent}"
    return number if dtype == "float64" else f"{number}f"


_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class NameTable:
    """Gives each wanted name a C identifier that is no reserved word and no one else's."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._taken = set(reserved) | _KEYWORDS
        self._given: dict[str, str] = {}

    def __getitem__(self, wanted: str) -> str:
        if wanted not in self._given:
            self._given[wanted] = self.fresh(wanted)
        return self._given[wanted]

    def fresh(self, wanted: str) -> str:
        """A new identifier like `wanted`, even where `wanted` was given before."""
        name = identifier(wanted)
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name


def identifier(wanted: str) -> str:
    """`wanted` with every character that C does not allow replaced."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", wanted)
    return name if name[:1].isalpha() else f"v{name}"


def words(texts: Iterable[str]) -> frozenset[str]:
    """Every identifier that occurs in C text or templates."""
    return frozenset(word for text in texts for word in _WORD.findall(text))


def comment(text: str) -> str:
    """`text` made safe inside a C comment."""
    return text.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?").replace("\\", "/")


def indent(lines: Iterable[str], depth: int = 1) -> list[str]:
    """The lines, two blanks further right per level."""
    pad = "  " * depth
    return [pad + line if line and not line.startswith("#") else line for line in lines]
