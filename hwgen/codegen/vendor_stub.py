"""A stub of the vendor's header: what the text of kernels names and does not define.

With it the text compiles before the vendor's own header is at hand, and a reader sees what the
library must have. Types follow from the arguments; a stub defines nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hwgen.codegen.c_names import words
from hwgen.codegen.c_words import code_alone, is_taken

_STANDARD = words(
    ["assert complex ctype errno fenv float inttypes iso646 limits locale math omp setjmp signal "
     "stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string tgmath "
     "threads time uchar wchar wctype"]
)  # fmt: skip
"""Headers that a compiler brings along."""

_TOKEN = re.compile(r'""|[A-Za-z_]\w*|0[xX][0-9a-fA-F]+\w*|\d[\w.]*(?:(?<=[eE])[+-]\d+\w*)?|\S')
_TYPES = words(
    ["void char short int long float double signed unsigned const static inline restrict extern "
     "struct bool volatile"]
)  # fmt: skip
_WORDS = words(
    ["if else for while do return break continue switch case default goto sizeof true false NULL "
     "typedef union enum _Alignas _Static_assert __asm__ __attribute__ INFINITY NAN INT64_C",
     "INT32_MIN INT64_MIN"]
)  # fmt: skip


_INFINITE = words(["INFINITY NAN"])


def vendor_headers(includes: Sequence[str]) -> list[str]:
    """The paths of a spec's headers that are neither a compiler's nor found relative to a file's
    own folder, upwards."""
    own = (*_standard(includes), *compiler_headers(includes))
    paths = (_path(name) for name in includes)
    return [p for p in paths if p not in own and ".." not in p.split("/")]


def compiler_headers(includes: Sequence[str]) -> list[str]:
    """Those that compilers for one kind of machine bring along, to name its instructions: what is
    neither quoted nor in a folder."""
    bare = (_path(n) for n in includes if n.strip().startswith("<") and "/" not in n)
    return [p for p in bare if p not in _standard(includes)]


def _standard(includes: Sequence[str]) -> list[str]:
    return [p for p in map(_path, includes) if p.removesuffix(".h") in _STANDARD]


def _path(include: str) -> str:
    return include.strip().strip('<>"')


def stub(texts: Sequence[tuple[str, str]], header: str, spec: str) -> str:
    """The header's text; `texts`: each kernel's name, and what its files declare and define."""
    seen = _Seen()
    for name, text in texts:
        seen.read(name, text)
    guard = re.sub(r"\W", "_", f"STUB_{header}").upper()
    lines = [
        f"/* A stub of {header}: what kernels for {spec} call, with guessed types. The vendor's",
        " * own header and library take its place. */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        *(f"#include <{name}.h>" for name in ("stdbool", "stddef", "stdint")),
        "",
        *(f"typedef void *{name};" for name in seen.types),
        *([""] if seen.types else []),
    ]
    if seen.constants:
        lines += ["enum {", *(f"  {name}," for name in seen.constants), "};", ""]
    lines += ["#ifdef __cplusplus", 'extern "C" {', "#endif", ""]
    lines += [_prototype(call) for call in seen.calls.values()]
    lines += ["", "#ifdef __cplusplus", "}", "#endif", "", f"#endif /* {guard} */", ""]
    return "\n".join(lines)


@dataclass(slots=True)
class _Call:
    """A function of the vendor's. `arguments`: the types of each, one per call."""

    name: str
    result: str = "void"
    arguments: list[list[str]] = field(default_factory=list[list[str]])


def _prototype(call: _Call) -> str:
    counts = {len(types) for types in call.arguments}
    if len(counts) > 1:
        return f"#define {call.name}(...) ((void)0)"
    joined = [_join(position) for position in zip(*call.arguments, strict=True)]
    shown = ", ".join(
        kind.replace("(*)", f"(*a{n})") if "(*)" in kind else f"{kind}{_gap(kind)}a{n}"
        for n, kind in enumerate(joined)
    )
    return f"{call.result}{_gap(call.result)}{call.name}({shown or 'void'});"


def _gap(kind: str) -> str:
    return "" if kind.endswith("*") else " "


def _join(kinds: Sequence[str]) -> str:
    """One type for what the calls give."""
    found = set(kinds)
    for order in ("const void *", "void *", "double", "float", "int64_t", "uint32_t"):
        if order in found and (found <= _NUMBERS) == (order in _NUMBERS):
            return order
    return min(found)


_NUMBERS = frozenset(("double", "float", "int64_t", "uint32_t", "int32_t"))


@dataclass(slots=True)
class _Seen:
    """What texts name, in the order in which they do."""

    declared: dict[str, str] = field(default_factory=dict[str, str])
    types: dict[str, None] = field(default_factory=dict[str, None])
    constants: dict[str, None] = field(default_factory=dict[str, None])
    calls: dict[str, _Call] = field(default_factory=dict[str, _Call])

    def read(self, name: str, text: str) -> None:
        """Add what one kernel's text names; what it declares ends with it."""
        self.declared = {}
        tokens = _TOKEN.findall(code_alone(text))
        for at, token in enumerate(tokens):
            if not (token[0].isalpha() or token[0] == "_") or tokens[at - 1] in (".", ">"):
                continue
            if self._is_type(token) or token in _WORDS or is_library(token):
                continue
            following = tokens[at + 1] if at + 1 < len(tokens) else ""
            kind = self._declares(tokens, at)
            if kind:
                if following == "(":
                    kind = f"{kind}{_gap(kind)}(*)({', '.join(self._parameters(tokens, at + 1))})"
                self.declared.setdefault(token, kind)
                for other in self._beside(tokens, at):
                    self.declared.setdefault(other, kind)
            elif token in self.declared or token == name or token.startswith(f"{name}_"):
                continue
            elif following == "(":
                self._called(tokens, at)
            elif _names_a_type(tokens, at):
                self.types.setdefault(token)
            else:
                self.constants.setdefault(token)

    def _is_type(self, token: str) -> bool:
        return token in _TYPES or token in self.types or bool(re.fullmatch(r"\w+_t", token))

    def _declares(self, tokens: Sequence[str], at: int) -> str:
        """The type that stands before a name which is declared; "" where it is only used."""
        start = at
        while start and (self._is_type(tokens[start - 1]) or tokens[start - 1] == "*"):
            start -= 1
        kind = [t for t in tokens[start:at] if t not in ("static", "inline", "extern", "restrict")]
        if not any(self._is_type(t) for t in kind) or not self._is_type(kind[0]):
            return ""
        stars = "*" * kind.count("*")
        plain = " ".join(t for t in kind if t != "*")
        if tokens[at + 1 : at + 2] == ["["]:
            stars += "*"
        return f"{plain} {stars}" if stars else plain

    def _beside(self, tokens: Sequence[str], at: int) -> Iterator[str]:
        """The other names that a statement declares of the same type, as in `T a = f(), b;`."""
        start = at
        while start and (self._is_type(tokens[start - 1]) or tokens[start - 1] == "*"):
            start -= 1
        if tokens[start - 1] not in (";", "{", "}"):
            return
        depth = 0
        for n in range(at + 1, len(tokens) - 1):
            depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(tokens[n], 0)
            if depth < 0 or (depth == 0 and tokens[n] == ";"):
                return
            if depth == 0 and tokens[n] == ",":
                yield tokens[n + 1]

    def _parameters(self, tokens: Sequence[str], opening: int) -> Iterator[str]:
        for part in _parts(tokens, opening):
            if part == ["void"] or not part:
                continue
            yield self._declares([*part, ""], len(part) - 1) or "int"

    def _called(self, tokens: Sequence[str], at: int) -> None:
        call = self.calls.setdefault(tokens[at], _Call(tokens[at]))
        parts = [p for p in _parts(tokens, at + 1) if p]
        call.arguments.append([self._argument(p) for p in parts])
        if tokens[at - 1] == "=" and tokens[at - 2] in self.declared:
            call.result = self.declared[tokens[at - 2]]
        elif call.result == "void" and tokens[at - 1] in ("(", ","):
            call.result = "int32_t"  # As of an argument.

    def _argument(self, tokens: Sequence[str]) -> str:
        first, *rest = tokens
        if first == "&":
            return "void *"
        if first == '""':
            return "const char *"
        if first == "(" and "*" in tokens[: tokens.index(")")] and self._is_type(rest[0]):
            return "const void *"
        if first == "(" and self._is_type(rest[0]) and rest[1] == ")":
            return rest[0]
        known = self.declared.get(first, "")
        if rest and not (rest[0] in ("+", "-") and (known in self.types or known.endswith("*"))):
            known = ""
        if known in self.types or "(*)" in known:
            return known
        if known.endswith("*"):
            return "const void *" if known.startswith("const") else "void *"
        if not _INFINITE.isdisjoint(tokens):
            return "float"
        numbers = [t for t in tokens if t[0].isdigit()]
        if any("." in n or ("e" in n.lower() and not n.lower().startswith("0x")) for n in numbers):
            return "float" if any(n.endswith("f") for n in numbers) else "double"
        if any(n.lower().endswith("u") for n in numbers):
            return "uint32_t"
        wide = any(int(re.sub(r"[uUlL]+$", "", n), 0) >= 1 << 31 for n in numbers)
        return "int64_t" if wide or known == "int64_t" else "int32_t"


def _names_a_type(tokens: Sequence[str], at: int) -> bool:
    """Whether a name that nobody declares begins a declaration: another name follows."""
    after = tokens[at + 1 : at + 4]
    if after[:1] == ["*"]:
        before, behind = tokens[at - 1], after[2:3]
        return before in (";", "{", "}", "(", ",") and behind in (["="], [";"], [","], [")"])
    return bool(after) and (after[0][0].isalpha() or after[0][0] == "_")


def _parts(tokens: Sequence[str], opening: int) -> Iterator[list[str]]:
    """What stands between the commas of a parenthesis."""
    depth, part = 0, list[str]()
    for token in tokens[opening:]:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(token, 0)
        if depth == 0:
            yield part
            return
        if depth == 1 and token == ",":
            yield part
            part = []
        elif not (depth == 1 and token == "(" and not part):
            part.append(token)


def is_library(token: str) -> bool:
    """Whether a name is one of the C library's; capitals alone are the vendor's macros."""
    return is_taken(token) and not token.isupper()
