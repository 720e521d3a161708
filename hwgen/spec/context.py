"""What every resolving step shares: the document, the numbers by name, and located errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hwgen.errors import HwgenError
from hwgen.spec.expression import (
    Access,
    Assign,
    Const,
    Expr,
    Name,
    evaluate,
    names,
    substitute,
    walk,
)
from hwgen.spec.findings import ConsequenceError, Findings
from hwgen.spec.grammar import ExpressionError, parse_assign, parse_expression
from hwgen.spec.limits import MAX_BYTES
from hwgen.spec.ranges import Range
from hwgen.spec.source import Document, FieldPath, field_text
from hwgen.spec.suggest import suggestion

MAX_INTEGER = (1 << 63) - 1
MOST_BITS = 62
_POWERS = re.compile(r"\s*(?P<base>.+?)\s*\*\*\s*\((?P<range>.+\.\..+)\)\s*")
_SIZE_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_CLOCK_UNITS = {"Hz": 1, "kHz": 10**3, "MHz": 10**6, "GHz": 10**9}
_WITH_UNIT = re.compile(r"(?P<number>.*?)\s*(?P<unit>[A-Za-z]+)?\s*")


def name_offset(text: str, name: str) -> int:
    """Where a name first stands as a word in a text; 0 where it does not."""
    found = re.search(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])", text)
    return found.start() if found else 0


def changed(
    values: Mapping[str, int], overrides: Mapping[str, int], file: Callable[[], Mapping[str, int]]
) -> tuple[tuple[str, int], ...]:
    """The parameters or sizes that were set to another number than the file gives them."""
    if not overrides:
        return ()
    given = file()
    return tuple((n, v) for n, v in values.items() if n in overrides and v != given.get(n))


@dataclass(frozen=True, slots=True)
class Types:
    """Data types of a workload: by name, of tensors where not the file's, and all that is `given`
    from outside, by names of both."""

    named: tuple[tuple[str, str], ...] = ()
    tensors: tuple[tuple[str, str], ...] = ()
    given: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return ", ".join(f"{name}={dtype}" for name, dtype in self.given)


@dataclass(frozen=True, slots=True)
class Context:
    """`values`: parameters of a spec or sizes of a workload; `noun` is what to call them.
    `findings`: the errors of the document so far. `types`: what casts may name."""

    document: Document
    values: Mapping[str, int]
    noun: str
    findings: Findings
    types: Types = Types()

    def error(
        self,
        code: str,
        message: str,
        path: FieldPath,
        *,
        offset: int | None = None,
        key: bool = False,
        found: str = "",
        allowed: str = "",
        repair: str = "",
    ) -> HwgenError:
        """An error at a field, to be raised by the caller."""
        return HwgenError(
            code, message, location=self.document.locate(path, key=key, offset=offset),
            field=field_text(path), found=found, allowed=allowed, repair=repair,
        )  # fmt: skip

    def _located(self, problem: ExpressionError, path: FieldPath, shift: int = 0) -> HwgenError:
        known = problem.diagnostic
        return self.error(
            known.code, known.message, path, offset=problem.offset + shift, found=known.found,
            allowed=known.allowed, repair=known.repair,
        )  # fmt: skip

    def parse(self, text: int | str, path: FieldPath, shift: int = 0) -> Expr:
        """An expression; `shift` counts the characters of the field before `text`."""
        if isinstance(text, int):
            return Const(text)
        try:
            parsed = parse_expression(text)
        except ExpressionError as problem:
            raise self._located(problem, path, shift) from problem
        self.check_known(names(parsed))
        return parsed

    def check_known(self, used: Iterable[str]) -> None:
        """Raises:
        ConsequenceError: a name whose declaration has an error.
        """
        for name in used:
            if name in self.findings.broken:
                raise ConsequenceError("H025", f"{name!r} has an error")

    def parse_assign(self, text: str, path: FieldPath) -> Assign:
        """A statement."""
        try:
            parsed = parse_assign(text, self.types.named)
        except ExpressionError as problem:
            raise self._located(problem, path) from problem
        nodes = [*walk(parsed.target), *walk(parsed.value)]
        self.check_known(n.name for n in nodes if isinstance(n, Name))
        self.check_known(n.tensor for n in nodes if isinstance(n, Access))
        return parsed

    def bound(self, expr: Expr) -> Expr:
        """The expression with parameters or sizes replaced by their numbers."""
        return substitute(expr, {name: Const(value) for name, value in self.values.items()})

    def check_names(
        self, expr: Expr, text: int | str, path: FieldPath, known: list[str], shift: int = 0
    ) -> None:
        """Every name in an expression is a parameter (size) or one of `known`; else H025."""
        allowed = [*known, *self.values]
        for name in names(expr):
            if name not in allowed:
                what = (
                    f"name {name!r} is known here" if known else f"{self.noun} is called {name!r}"
                )
                raise self.error(
                    "H025", f"no {what}", path,
                    offset=name_offset(str(text), name) + shift, found=name,
                    allowed=", ".join(allowed) or "numbers only",
                    repair=self._repair(name, allowed),
                )  # fmt: skip

    def _repair(self, name: str, allowed: list[str]) -> str:
        if name.lower() in ("on", "off", "yes", "no"):
            return "YAML 1.2 reads this word as text"
        if name in ("transfer", "bursts", "beats"):
            return "only intrinsics with an off-chip operand have a transfer"
        if name == "bank_cycles":
            return "add iterations_per_cycle: how many iterations access interleaved banks at once"
        near = suggestion(name, allowed)
        if near or not name.isidentifier():
            return near
        return f"write a number, or add {name} to `{self.noun}s`"

    def integer(
        self,
        text: int | str,
        path: FieldPath,
        minimum: int | None = None,
        maximum: int | None = None,
        shift: int = 0,
    ) -> int:
        """The integer that a field stands for.

        Raises:
            HwgenError: H02x for the expression, H026 out of `minimum`..`maximum`.
        """
        self._check_single(text, path)
        expr = self.parse(text, path, shift)
        self.check_names(expr, text, path, [], shift)
        value = self._number(expr, text, path, shift)
        low = minimum if minimum is not None else -MAX_INTEGER
        high = maximum if maximum is not None else MAX_INTEGER
        if not low <= value <= high:
            found = (
                str(value) if isinstance(text, int) or text == str(value) else f"{text} = {value}"
            )
            limits = f"{low}..{high}" if maximum is not None else f"at least {low}"
            raise self.error(
                "H026", "the number is out of bounds", path, found=found[:80], allowed=limits,
                repair=_in_bounds(str(text), value, low, high),
            )  # fmt: skip
        return value

    def rate(self, text: int | float | str, path: FieldPath, most: int = MAX_INTEGER) -> float:
        """The number above zero that a field stands for, whole or not.

        Raises:
            HwgenError: H02x for the expression, H026 not above zero, or above `most`.
        """
        self._check_single(text, path)
        if isinstance(text, int | float):
            value = text
        else:
            expr = self.parse(text, path)
            self.check_names(expr, text, path, [])
            value = self._value(expr, text, path, 0)
        if not 0 < value <= most:
            raise self.error(
                "H026", "the number is out of bounds", path, found=str(text)[:80],
                allowed=f"a number above 0, at most {most}",
            )  # fmt: skip
        return float(value)

    def _check_single(self, text: int | float | str, path: FieldPath) -> None:
        if isinstance(text, str) and ".." in text:
            raise self.error(
                "H024", "a range stands where one number is needed", path, found=text,
                allowed=f"one number or an expression over {self.noun}s",
            )  # fmt: skip

    def _number(self, expr: Expr, text: int | str, path: FieldPath, shift: int) -> int:
        value = self._value(expr, text, path, shift)
        if isinstance(value, float):
            raise self.error(
                "H024", "the expression is not an integer", path, offset=shift,
                found=f"{text} = {value:g}", allowed="an integer",
                repair="write // for a division that rounds down" if "/" in str(text) else "",
            )  # fmt: skip
        return value

    def _value(self, expr: Expr, text: int | str, path: FieldPath, shift: int) -> int | float:
        try:
            return evaluate(expr, self.values)
        except ZeroDivisionError as problem:
            raise self.error(
                "H024",
                "the expression divides by zero",
                path,
                offset=shift,
                found=self._with_values(expr),
            ) from problem
        except (OverflowError, ValueError, TypeError) as problem:
            raise self.error(
                "H024", f"the expression is not a number: {problem}", path, offset=shift,
                found=str(text),
            ) from problem  # fmt: skip

    def _with_values(self, expr: Expr) -> str:
        used = [f"{name} = {self.values[name]}" for name in names(expr)]
        return f"{expr}" + (f" with {', '.join(used)}" if used else "")

    def range(
        self, text: int | str | Sequence[int | str], path: FieldPath, minimum: int | None = None
    ) -> Range:
        """`low..high`, or one number.

        Raises:
            HwgenError: H027 bounds the wrong way round, H141 a range with gaps; else as `integer`.
        """
        found = self.values_of(text, path, minimum)
        if found.gaps:
            raise self.error(
                "H141", "every number of a range must be allowed here", path, found=str(found),
                allowed="low..high, or one number",
                repair="only extents, strides, addresses and immediates may leave out some",
            )  # fmt: skip
        return found

    def values_of(
        self, text: int | str | Sequence[int | str], path: FieldPath, minimum: int | None = None
    ) -> Range:
        """What a field holds: a range, every n-th number of one (`0..96 step 16`), powers
        (`2**(0..7)`), a list, or one number.

        Raises:
            HwgenError: H027 no number at all, H141 a step or powers that make no sense, or a number
                twice; else as `integer`.
        """
        if isinstance(text, int):
            value = self.integer(text, path, minimum)
            return Range(value, value)
        if not isinstance(text, str):
            given = [self.integer(v, (*path, n), minimum) for n, v in enumerate(text)]
            return self._listed(given, path)
        if power := _POWERS.fullmatch(text):
            base = self.integer(power["base"], path, 2)
            exponents = self.range(power["range"], path, 0)
            if exponents.maximum > MOST_BITS:
                raise self.error(
                    "H141", "powers of such an exponent fit no field", path, found=text,
                    allowed=f"exponents 0..{MOST_BITS}",
                )  # fmt: skip
            powers = [base**n for n in range(exponents.minimum, exponents.maximum + 1)]
            return self._listed([self.integer(v, path, minimum) for v in powers], path)
        if ".." not in text:
            value = self.integer(text, path, minimum)
            return Range(value, value)
        ends, _, every = text.partition(" step ")
        low_text, _, high_text = ends.partition("..")
        low = self.integer(low_text, path, minimum)
        high = self.integer(high_text, path, None, None, len(low_text) + 2)
        if low > high:
            raise self.error(
                "H027", "the range is empty", path, found=f"{low}..{high}",
                allowed="low..high with low <= high", repair=f"did you mean {high}..{low}?",
            )  # fmt: skip
        step = self.integer(every, path, 1, None, len(ends) + 6) if every else 1
        last = high - (high - low) % step
        return Range(low, last, step if last > low else 1)

    def _listed(self, given: list[int], path: FieldPath) -> Range:
        """The numbers of a list; a plain range where they are one."""
        if not given:
            raise self.error("H027", "the list is empty", path, found="[]", allowed="numbers")
        values = sorted(set(given))
        if len(values) != len(given):
            twice = next(v for v in values if given.count(v) > 1)
            raise self.error(
                "H141", "a number stands twice in a list", path, found=str(twice),
                allowed="each number once",
            )  # fmt: skip
        if values[-1] - values[0] == len(values) - 1:
            return Range(values[0], values[-1])
        return Range(values[0], values[-1], among=tuple(values))


def definitions(
    context: Context,
    texts: Mapping[str, int | str],
    where: Callable[[str], FieldPath],
    read: Callable[[Context, str], int],
) -> dict[str, int]:
    """Numbers by name, in order: each may use those above it. What has an error is left out.

    `where`: the field of a name's `texts`; `read` gives its number, by what is known above it.
    """
    values: dict[str, int] = {}

    def one(name: str) -> None:
        above = replace(context, values=values)
        _check_order(above, name, texts, where(name))
        values[name] = read(above, name)

    context.findings.each(texts, one)
    return values


def _check_order(
    context: Context, name: str, texts: Mapping[str, int | str], path: FieldPath
) -> None:
    """Refuse numbers that are used before they are defined (H025)."""
    for used in _used(texts[name]):
        if used in context.values or used in context.findings.broken or used not in texts:
            continue
        circle = _circle(name, used, texts)
        context.check_known(circle)
        offset = name_offset(str(texts[name]), used)
        noun = context.noun
        if circle:
            raise context.error(
                "H025", f"{noun} {name!r} is defined by itself", path, offset=offset,
                found=" -> ".join(circle), allowed=", ".join(context.values) or "numbers only",
                repair=f"give one of {', '.join(sorted(set(circle)))} a number"
                if len(circle) > 2 else f"give {name} a number",
            )  # fmt: skip
        raise context.error(
            "H025", f"{noun} {used!r} is used before it is defined", path, offset=offset,
            found=f"{used}, which is defined below {name}",
            allowed=", ".join(context.values) or "numbers only",
            repair=f"move {used} above {name}",
        )  # fmt: skip


def _used(text: int | str) -> tuple[str, ...]:
    """The names in an expression; none where it is none."""
    try:
        return names(parse_expression(text)) if isinstance(text, str) else ()
    except ExpressionError:
        return ()  # What reads the number says so.


def _circle(name: str, used: str, texts: Mapping[str, int | str]) -> list[str]:
    """The shortest way by which a number is defined by itself, through one that it uses."""
    ways = [[name, used]]
    seen = {used}
    for way in ways:  # Grows while it is walked.
        if way[-1] == name:
            return way
        for further in _used(texts[way[-1]]):
            if further == name:
                return [*way, name]
            if further in texts and further not in seen:
                seen.add(further)
                ways.append([*way, further])
    return []


def reference(
    context: Context, path: FieldPath, what: str, name: str, known: Mapping[str, object]
) -> None:
    """Refuse a name that was not declared (H113); a declaration with an error is one too."""
    if name not in known and name not in context.findings.broken:
        raise context.error(
            "H113", f"no {what} is called {name!r}", path, found=name,
            allowed=", ".join(known) or f"no {what} is declared",
            repair=suggestion(name, list(known))
            or ("name one of these, or " if known else "") + f"declare {name!r}",
        )  # fmt: skip


def _in_bounds(text: str, value: int, low: int, high: int) -> str:
    """A number or range near to one that is out of bounds; nothing where none is."""
    if (dash := re.fullmatch(r"\s*(\d+)\s*-\s*(\d+)\s*", text)) and value < 0:
        return f"a range is written {dash[1]}..{dash[2]}"
    return f"did you mean {-value}?" if value < 0 and low <= -value <= high else ""


def size_bytes(context: Context, text: int | str, path: FieldPath) -> int:
    """`32 KiB`, or a number of bytes.

    Raises:
        HwgenError: H109 an unknown unit; else as `Context.integer`, up to what C can address.
    """
    if isinstance(text, int):
        return context.integer(text, path, 1, MAX_BYTES)
    matched = _WITH_UNIT.fullmatch(text)
    number, unit = (matched["number"], matched["unit"] or "") if matched else (text, "")
    context.check_known((unit,))
    if unit in context.values and not number:
        number, unit = unit, ""
    elif unit in context.values and unit not in _SIZE_UNITS:
        number, unit = text, ""
    if unit not in _SIZE_UNITS:
        near = {"K": "KiB", "KB": "KiB", "M": "MiB", "MB": "MiB", "G": "GiB", "GB": "GiB"}
        guess = near.get(unit.upper(), "")
        raise context.error(
            "H109", "a size in a unit that is not known", path, found=text,
            allowed=", ".join(u for u in _SIZE_UNITS if u),
            repair=f"write {number.strip()} {guess} ({_SIZE_UNITS[guess]} bytes)" if guess else "",
        )  # fmt: skip
    return context.integer(number, path, 1, MAX_BYTES // _SIZE_UNITS[unit]) * _SIZE_UNITS[unit]


def hertz(context: Context, text: str, path: FieldPath) -> float:
    """A frequency, as `650 MHz`.

    Raises:
        HwgenError: H109 no unit, or an unknown one; else as `Context.rate`.
    """
    matched = _WITH_UNIT.fullmatch(text)
    number, unit = (matched["number"], matched["unit"] or "") if matched else (text, "")
    if unit not in _CLOCK_UNITS:
        guess = next((u for u in _CLOCK_UNITS if u.lower() == unit.lower()), "")
        raise context.error(
            "H109", "a frequency in a unit that is not known", path, found=text,
            allowed=", ".join(_CLOCK_UNITS),
            repair=f"write {number.strip()} {guess}" if guess else "write it as in 1 GHz",
        )  # fmt: skip
    scale = _CLOCK_UNITS[unit]
    return context.rate(number, path, MAX_INTEGER // scale) * scale
