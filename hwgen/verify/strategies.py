"""What a campaign draws: sizes, parameters, data and a schedule, all within what files allow."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hwgen.spec.source import Data, Text, parse_document
from hwgen.verify.data import STYLES, Style

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

ODD_EXTENTS = (1, 7, 16, 17, 255, 257)
"""Around the powers of two that hardware likes."""
SMALL_DEFAULT = 8
"""A size that others derive from and whose default is at most this is a stride or a window."""
SCHEDULES = 12
"""Schedules of a workload that are tried, by rank."""

Values = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One example. `schedule`: rank in the search's order, 0 the best. `use_c`: run the C too."""

    parameters: Values = ()
    sizes: Values = ()
    style: Style = "random"
    seed: int = 0
    schedule: int = 0
    use_c: bool = False


@dataclass(frozen=True, slots=True)
class Choices:
    """The values that each name may take, the first being the simplest."""

    parameters: tuple[tuple[str, tuple[int, ...]], ...]
    sizes: tuple[tuple[str, SizeChoice], ...]


@dataclass(frozen=True, slots=True)
class SizeChoice:
    """`extent`: any positive number, odd ones often. Otherwise one of `values`."""

    default: int
    extent: bool
    values: tuple[int, ...] = ()


def choices(
    spec: Text,
    workload: Text,
    fixed_parameters: Mapping[str, int],
    fixed_sizes: Mapping[str, int],
    valid: Callable[[str, int], bool],
) -> Choices:
    """What the two files leave open.

    Names in `fixed_...` are not drawn; `valid` says whether a size may have a value at all.
    """
    return Choices(
        tuple(
            (name, values)
            for name, values in _parameters(parse_document(*spec).data)
            if name not in fixed_parameters
        ),
        tuple(
            (name, replace(choice, values=tuple(v for v in choice.values if valid(name, v))))
            for name, choice in _sizes(parse_document(*workload).data)
            if name not in fixed_sizes
        ),
    )


def _mapping(data: Data, key: str) -> dict[str, Data]:
    entry = data.get(key) if isinstance(data, dict) else None
    return entry if isinstance(entry, dict) else {}


def _parameters(data: Data) -> list[tuple[str, tuple[int, ...]]]:
    """Parameters with a literal range: the default, the ends, and its double and half."""
    found: list[tuple[str, tuple[int, ...]]] = []
    for name, entry in _mapping(data, "parameters").items():
        if not isinstance(entry, dict):
            continue
        default, interval = entry.get("value"), entry.get("range")
        matched = re.fullmatch(r"\s*(-?\d+)\s*\.\.\s*(-?\d+)\s*", str(interval))
        if not isinstance(default, int) or matched is None:
            continue
        low, high = int(matched[1]), int(matched[2])
        wanted = (default, 2 * default, default // 2, 4 * default, low)
        values = tuple(dict.fromkeys(v for v in wanted if low <= v <= high))
        found.append((name, values))
    return found


def _sizes(data: Data) -> list[tuple[str, SizeChoice]]:
    """Sizes given as numbers; those that tensors' shapes depend on are extents or windows."""
    sizes = _mapping(data, "sizes")
    tensors = _mapping(data, "tensors")
    text = " ".join(str(t.get("type") if isinstance(t, dict) else t) for t in tensors.values())
    shaping = set(re.findall(r"[A-Za-z_]\w*", text))
    derived: set[str] = set()
    for name in reversed(list(sizes)):
        expression = sizes[name]
        if name in shaping and isinstance(expression, str):
            derived |= set(re.findall(r"[A-Za-z_]\w*", expression))
            shaping |= derived
    found: list[tuple[str, SizeChoice]] = []
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int):
            continue
        if name not in shaping:
            near = (value, value - 1, value + 1, value - 3, value + 3)
            found.append((name, SizeChoice(value, extent=False, values=near)))
        elif name in derived and value <= SMALL_DEFAULT:
            windows = tuple(dict.fromkeys((value, 1, 2, 3, 0, 4)))
            found.append((name, SizeChoice(value, extent=False, values=windows)))
        else:
            found.append((name, SizeChoice(value, extent=True)))
    return found


def cases(open_choices: Choices, *, with_c: bool) -> SearchStrategy[Case]:
    """A Hypothesis strategy that shrinks towards small extents and the defaults."""
    from hypothesis import strategies as st

    @st.composite
    def draw_case(draw: DrawFn) -> Case:
        # Most examples keep the chip as it is: its variants are checked less often than sizes.
        vary = bool(open_choices.parameters) and draw(st.integers(0, 3)) == 3
        parameters = tuple(
            (name, draw(st.sampled_from(values)))
            for name, values in open_choices.parameters
            if vary
        )
        sizes = tuple(
            (
                name,
                draw(
                    st.one_of(st.sampled_from(ODD_EXTENTS), st.integers(1, 64))
                    if choice.extent
                    else st.sampled_from(choice.values)
                ),
            )
            for name, choice in open_choices.sizes
        )
        return Case(
            parameters,
            sizes,
            draw(st.sampled_from(STYLES)),
            draw(st.integers(0, 999)),
            draw(st.one_of(st.just(0), st.integers(0, SCHEDULES - 1))),
            with_c and draw(st.integers(0, 3)) == 3,
        )

    return draw_case()


def shrunk(sizes: Values, open_choices: Choices) -> Values | None:
    """The sizes with the largest extent halved, None where all of them are 1."""
    extents = [
        (value, name)
        for name, value in sizes
        if dict(open_choices.sizes)[name].extent and value > 1
    ]
    if not extents:
        return None
    _, largest = max(extents)
    return tuple((n, -(-v // 2) if n == largest else v) for n, v in sizes)
