"""Several values of a `--set`: lists and ranges, and every combination of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product
from math import prod

from hwgen.cli.resolve import parse_assignments
from hwgen.errors import HwgenError

MAX_POINTS = 1024
"""Combinations of one `generate`."""
MAX_VALUES = 4096
"""Values of one name."""
ALLOWED = "NAME=8,16,32 or NAME=LOW..HIGH, with a step LOW..HIGH+STEP or a factor LOW..HIGHxFACTOR"
_RANGE = re.compile(r"\s*([-+]?\d{1,19})\s*\.\.\s*([-+]?\d{1,19})\s*(?:([x+])\s*(\d{1,19}))?\s*")
_INTEGER = re.compile(r"\s*[-+]?\d+\s*", re.ASCII)


def values_of(text: str) -> list[str]:
    """A `--set` for each value of one with several, in their order.

    Raises:
        HwgenError: H004 where one is no integer, a range is empty, or a value stands twice.
    """
    name, equals, values = text.partition("=")
    found: list[str] = []
    several = re.search(r",|\.\.", values) is not None
    for part in values.split(","):
        span = _RANGE.fullmatch(part)
        if several and span is None and not _INTEGER.fullmatch(part):
            raise HwgenError(
                "H004", "--set has neither integers nor a range", found=f"{name}{equals}{part}",
                allowed=ALLOWED, repair=_meant(name, part),
            )  # fmt: skip
        numbers = [part] if span is None else map(str, _numbers(text, span))
        found += [f"{name}{equals}{v}" for v in numbers]
        limit(len(found), MAX_VALUES, text)
    for one in found:
        parse_assignments([one])
    if len(set(found)) < len(found):
        raise HwgenError(
            "H004", "--set has a value twice", found=text, repair="keep one of the two"
        )
    return found


def _meant(name: str, part: str) -> str:
    """The range with the numbers of what is none, or an example."""
    numbers = re.findall(r"\d+", part)
    if len(numbers) == 2:
        return f"did you mean {name}={'..'.join(numbers)}?"
    if len(numbers) == 3:
        low, high, factor = numbers
        return f"did you mean {name}={low}..{high}x{factor}?"
    return f"for example --set {name}=8..32x2"


def _numbers(text: str, span: re.Match[str]) -> list[int]:
    low, high, kind, by = int(span[1]), int(span[2]), span[3], int(span[4] or 1)
    if low > high or (kind == "x" and (by < 2 or low < 1)) or by < 1:
        raise HwgenError(
            "H004", "--set has a range without values", found=text, allowed=ALLOWED,
            repair=f"did you mean {high}..{low}?" if low > high else
            "a factor is 2 or more, and begins above 0" if kind == "x" else "a step is 1 or more",
        )  # fmt: skip
    if kind != "x":
        limit((high - low) // by + 1, MAX_VALUES, text)
        return [*range(low, high + 1, by)]
    found = [low]
    while found[-1] * by <= high:
        found.append(found[-1] * by)
    return found


def expand(settings: Sequence[str], most: int = MAX_POINTS) -> list[tuple[str, ...]]:
    """Every combination of the values, the last name's changing fastest.

    Raises:
        HwgenError: H004 as `values_of`, or where there are too many combinations.
    """
    choices = [values_of(text) for text in settings]
    limit(prod(map(len, choices)), most)
    return list(product(*choices))


def limit(count: int, most: int, text: str = "") -> None:
    """Refuse more than there may be.

    Raises:
        HwgenError: H004.
    """
    if count > most:
        what = "values" if text else "combinations"
        raise HwgenError(
            "H004", f"--set has too many {what}", found=f"{count:,}",
            allowed=f"at most {most:,}",
            repair="take fewer values, or several commands",
        )  # fmt: skip
