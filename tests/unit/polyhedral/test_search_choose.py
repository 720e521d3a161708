"""Which candidates of a search are built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import hwgen
from hwgen.errors import HwgenError
from hwgen.polyhedral.match.matching import match
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.scop import build_scop
from hwgen.polyhedral.search import choose as search_choose
from hwgen.polyhedral.search.choose import choose
from hwgen.polyhedral.search.search import Candidate, SearchResult, Watch, search
from hwgen.polyhedral.search.tiling import Tiling
from hwgen.spec.hardware import HardwareSpec
from tests.made import Made

ROOT = Path(__file__).parents[3]
KEPT = 64


def entries(tiling: Tiling) -> int:
    return sum(tiling.taken(n) for n, _ in tiling.depths)


class Build:
    """Kernels of candidates whose buffers have at most so many entries."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.built: list[Candidate] = []

    def __call__(self, candidate: Candidate) -> Made:
        self.built.append(candidate)
        taken = entries(candidate.tiling)
        if taken > self.room:
            raise HwgenError("H502", "buffers do not fit", found=str(taken))
        return Made(int(candidate.cycles), onchip_bytes=taken)


def nothing_known(*_: object) -> None:
    """Stands in for what earlier candidates tell of others."""


def found() -> tuple[HardwareSpec, SearchResult]:
    chip = hwgen.load_hardware(ROOT / "hw_specs" / "vta.yaml")
    sizes = {"M": 64, "N": 128, "K": 300}
    scop = build_scop(hwgen.load_workload(ROOT / "workloads" / "gemm.yaml", sizes))
    return chip, search(chip, match(scop, select(scop, chip)), KEPT, 2, Watch(None))


def test_what_is_larger_than_what_does_not_fit_is_not_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chip, result = found()
    room = sorted(entries(c.tiling) for c in result.candidates)[len(result.candidates) // 2]
    build = Build(room)
    kernel, chosen = choose(chip, result, build, Watch(None))
    every = Build(room)
    monkeypatch.setattr(search_choose._Tried, "_no_room", nothing_known)  # pyright: ignore[reportPrivateUsage]
    alike, others = choose(chip, result, every, Watch(None))
    assert (kernel, chosen.refused) == (alike, others.refused)
    fitting = [c for c in every.built if entries(c.tiling) <= room]
    assert [c for c in build.built if entries(c.tiling) <= room] == fitting
    assert len(build.built) < len(every.built)


def test_an_end_is_to_make_a_kernel_the_one_that_is_chosen() -> None:
    """Of kernels with as much traffic: no slower than the fastest, those with other ends among
    them. The chosen one may be as much slower as it is now."""
    chip, result = found()
    asked: list[tuple[int, float]] = []

    def ended(kernel: Made, most: float) -> Made:
        asked.append((kernel.cycles, most))
        return replace(kernel, cycles=kernel.cycles - 100) if len(asked) == 2 else kernel

    plain, _ = choose(chip, result, Build(1 << 30), Watch(None))
    kernel, _ = choose(chip, result, Build(1 << 30), Watch(None), ended=ended)
    (first, slack), (second, fastest), *others = asked
    assert (first, second) == (plain.cycles, sorted(c for c, _ in asked)[1])
    assert slack > fastest == plain.cycles
    assert others
    assert {most for _, most in others} == {second - 100} == {kernel.cycles}


def test_what_a_chip_lacks_is_told() -> None:
    chip, result = found()
    refused: list[HwgenError] = []

    def build(candidate: Candidate) -> Made:
        raise HwgenError("H611", "no queue", found=str(candidate.tiling))

    with pytest.raises(HwgenError, match="no queue"):
        choose(chip, result, build, Watch(None), refused=refused)
    assert len(refused) == search_choose.LACKING
    assert search_choose.lacks(refused)
    assert not search_choose.lacks(refused[1:])


def built(off: Sequence[float], cycles: Sequence[float] = ()) -> int:
    """How many candidates of a long kernel are simulated that take in turn these parts of their
    estimates; `cycles`: the estimates, if not as found."""
    chip, result = found()
    given = cycles or [100 * c.cycles for c in result.candidates]
    candidates = tuple(
        replace(c, cycles=n, bound=1.0, beats=float(i) if not cycles else 1.0)
        for i, (c, n) in enumerate(zip(result.candidates, given, strict=False))
    )
    made: list[Candidate] = []

    def build(candidate: Candidate) -> Made:
        if candidate.bound:  # not of a tiling beside another
            made.append(candidate)
        return Made(int(candidate.cycles * off[len(made) % len(off)]))

    choose(chip, replace(result, candidates=candidates, near=()), build, Watch(None))
    return len(made)
