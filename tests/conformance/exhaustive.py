"""Every schedule of a small kernel, each compiled and simulated: what a search is measured by.

Shares nothing with the search: here are all tile sizes (not only the smallest of their number of
tiles), every order of the loops, every depth of every load and of what is stored from a buffer of
its own, and one or two slots per buffer. Of kernels of several phases, all of them in each phase.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, permutations, product
from pathlib import Path
from time import process_time

import hwgen
from hwgen.errors import HwgenError
from hwgen.passes.kernel import Kernel
from hwgen.passes.phase import MATCHES
from hwgen.passes.phased import plans_of
from hwgen.passes.start import Start
from hwgen.passes.trees import build, compile_padded
from hwgen.polyhedral.match.matching import Match, ranked_matches
from hwgen.polyhedral.match.operations import Operation
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.scop import build_scop
from hwgen.polyhedral.search.bound import least_work
from hwgen.polyhedral.search.choose import LIMITS
from hwgen.polyhedral.search.search import Candidate
from hwgen.polyhedral.search.tiling import Tiling
from hwgen.polyhedral.search.tiling_script import apply_tilings
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload
from tests.conformance.test_another_chip import SPEC, add, gemm, linear_relu

ROOT = Path(__file__).parents[2]


def half(m: int, n: int, k: int) -> Workload:
    """A product in float16, summed in float32."""
    tensors = {
        "x": f"float16[{m}, {k}]", "w": {"type": f"float16[{k}, {n}]", "constant": True},
        "s": f"float32[{m}, {n}]", "y": f"float16[{m}, {n}]",
    }  # fmt: skip
    compute = ["s[i, j] += float32(x[i, k]) * float32(w[k, j])", "y[i, j] = float16(s[i, j])"]
    return hwgen.workload("half", tensors=tensors, compute=compute)


def two_products(m: int, n: int, k: int, h: int) -> Workload:
    """Two products of bytes, one after the other."""
    tensors = {
        "x": f"int8[{m}, {k}]", "w": {"type": f"int8[{h}, {k}]", "constant": True},
        "v": {"type": f"int8[{n}, {h}]", "constant": True}, "s": f"int32[{m}, {h}]",
        "t": f"int8[{m}, {h}]", "u": f"int32[{m}, {n}]", "y": f"int8[{m}, {n}]",
    }  # fmt: skip
    compute = [
        "s[i, j] += x[i, k] * w[j, k]", "t[i, j] = int8(s[i, j])",
        "u[i, j] += t[i, k] * v[j, k]", "y[i, j] = int8(u[i, j])",
    ]  # fmt: skip
    return hwgen.workload("two_products", tensors=tensors, compute=compute)


MADE = {
    "gemm": gemm, "linear_relu": linear_relu, "add": add, "half": half,
    "two_products": two_products,
}  # fmt: skip
HERE = ("half", "two_products")
"""Those that are on shipped chips."""

REFUSED = (*LIMITS, "H502")
"""Schedules that the hardware does not allow; H502: the buffers exceed a memory."""


@dataclass(frozen=True)
class Case:
    """A workload on a chip; `sizes` by name where it is one of the files, by position where it is
    made here. `chip`: the file's name, of the shipped ones or of the one that the tests invent."""

    workload: str
    sizes: tuple[tuple[str, int], ...]
    parameters: tuple[tuple[str, int], ...] = ()
    chip: str = "vta"

    @cached_property
    def hardware(self) -> HardwareSpec:
        path = SPEC if self.chip == SPEC.stem else ROOT / "hw_specs" / f"{self.chip}.yaml"
        return hwgen.load_hardware(path, dict(self.parameters))

    @cached_property
    def loaded(self) -> Workload:
        if self.chip == SPEC.stem or self.workload in HERE:
            return MADE[self.workload](*(size for _, size in self.sizes))
        return hwgen.load_workload(ROOT / "workloads" / f"{self.workload}.yaml", dict(self.sizes))

    def __str__(self) -> str:
        settings = (*self.sizes, *self.parameters)
        name = self.workload if self.chip == "vta" else f"{self.chip}:{self.workload}"
        return ",".join((name, *(f"{n}={v}" for n, v in settings)))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The search's choice against the best of all `points`, of which `refused` do not run."""

    compilation: Kernel
    seconds: float
    points: int
    refused: int
    best: int
    below: tuple[str, ...]

    @property
    def ratio(self) -> float:
        return self.compilation.cycles / self.best


def judge(case: Case, every_match: bool = False) -> Outcome:
    """Compile, then simulate every schedule of the best group of matches, or of all groups that
    the search considers."""
    workload, hardware = case.loaded, case.hardware
    began = process_time()
    chosen = hwgen.compile_kernel(workload, hardware)
    seconds = process_time() - began
    if chosen.account.phases:
        best, points, refused = _phases(chosen)
        return Outcome(chosen, seconds, points, refused, best, ())
    scop = build_scop(workload)
    start = Start(workload, hardware)
    groups = ranked_matches(scop, select(scop, hardware))
    points = refused = 0
    best: int | None = None
    below: list[str] = []
    for match in (m for g in islice(groups, MATCHES if every_match else 1) for m in g):
        floor = least_work(hardware, match)
        for tiling in schedules(match):
            points += 1
            try:
                cycles = build(start, scop, Candidate(tiling, 0.0)).cycles
            except HwgenError as error:
                if error.code not in REFUSED:
                    raise
                refused += 1
                continue
            if cycles < floor:
                below.append(f"{cycles} < {floor}: {tiling}")
            best = cycles if best is None else min(best, cycles)
    assert best is not None
    return Outcome(chosen, seconds, points, refused, best, tuple(below))


def _phases(chosen: Kernel) -> tuple[int, int, int]:
    """The best of all schedules of the phases together, with the matches and the tensors on the
    chip that the search has; how many there are, and how many do not run."""
    start = chosen.start
    cycles: list[int] = []
    refused = 0
    for tilings in product(*(list(schedules(c.match)) for c in chosen.account.phases)):
        schedule = start.schedule.copy()
        kernels = [
            c.with_account(replace(c.account, chosen=Candidate(t, 0.0)))
            for c, t in zip(chosen.account.phases, tilings, strict=True)
        ]
        plans = plans_of(start, start.stages, kernels, chosen.account.spills)
        try:
            apply_tilings(schedule, plans)
            cycles.append(compile_padded(schedule).cycles)
        except HwgenError as error:
            if error.code not in REFUSED:
                raise
            refused += 1
    return min(cycles), len(cycles) + refused, refused


def schedules(match: Match) -> Iterator[Tiling]:
    """Every tiling of a match, those that differ in nothing once."""
    names = list(match.count)
    selection = match.selection
    for sizes in product(*(range(1, match.count[n] + 1) for n in names)):
        tiles = dict(zip(names, sizes, strict=True))
        cut = {n for n in names if match.count[n] > tiles[n]}
        spatial = [n for n in selection.spatial if n in cut]
        whole = tuple(n for n in selection.spatial if n in tiles and n not in cut)
        reduction = sum(n in cut for n in selection.reduction)
        options = [_options(match, s.name, len(spatial), reduction) for s in selection.storages]
        for order in permutations(spatial):
            for choice in product(*options):
                held = dict(zip((s.name for s in selection.storages), choice, strict=True))
                yield Tiling(
                    match,
                    tuple(sorted(tiles.items())),
                    (*order, *whole),
                    tuple((n, depth) for n, (depth, _) in held.items()),
                    tuple((n, slots) for n, (_, slots) in held.items()),
                )


def _options(match: Match, storage: str, spatial: int, reduction: int) -> list[tuple[int, int]]:
    """Depths and slots of a storage; more than one slot needs a loop around it."""
    if match.selection.storage(storage).shape:
        return [(0, 1)]  # It stays for other phases.
    operations = match.selection.operations
    users = [o for o in operations if storage in o.storages]
    inside = [o for o in users if match.selection.inner(o)]
    loaded = any(o.kind == "load" for o in users)
    written = [o for o in users if o.kind != "load" and _target(o) == storage]
    innermost = spatial + reduction
    if loaded and not written:
        depths = range((innermost if inside else spatial) + 1)
    else:
        prepared = any(o.kind == "map" for o in inside)
        depths = range(innermost, innermost + 1) if prepared else range(spatial, spatial + 1)
        if not inside and [o.kind for o in users] == ["map", "store"] and len(written) == 1:
            depths = range(spatial + 1)
    return [(depth, slots) for depth in depths for slots in ((1, 2) if depth else (1,))]


def _target(operation: Operation) -> str:
    names = [o.name for o in operation.intrinsic.operands]
    return operation.storages[names.index(operation.intrinsic.semantics[0].target.tensor)]


def case(
    workload: str, sizes: Mapping[str, int], parameters: Mapping[str, int] | None = None
) -> Case:
    """A case on the shipped chip."""
    return Case(workload, tuple(sizes.items()), tuple((parameters or {}).items()))


def invented(workload: str, m: int, n: int, k: int) -> Case:
    """A case on the chip that the tests invent."""
    return Case(workload, (("M", m), ("N", n), ("K", k)), chip=SPEC.stem)


def on(chip: str, workload: str, *sizes: int, parameters: Mapping[str, int] | None = None) -> Case:
    """A case on a chip of `hw_specs`, of a workload that is made here."""
    names = ("M", "N", "K", "H")[: len(sizes)]
    pairs = tuple(zip(names, sizes, strict=True))
    return Case(workload, pairs, tuple((parameters or {}).items()), chip)


def mnk(m: int, n: int, k: int) -> dict[str, int]:
    return {"M": m, "N": n, "K": k}


def convolution(c: int, h: int, w: int, o: int, r: int = 1, p: int = 0) -> dict[str, int]:
    return {"C": c, "H": h, "W": w, "O": o, "R": r, "P": p}


SLOW = {"READ_LATENCY": 100, "WRITE_LATENCY": 100}
# Entries of 1 KiB and 4 KiB: a memory holds 32 or 64 of them.
LARGE = {"BATCH": 16, "BLOCK_IN": 64, "BLOCK_OUT": 64}
NARROW = {"BLOCK_IN": 8, "BLOCK_OUT": 8}

# Entries of single rows and a short array: loops of several blocks in small tensors.
SHORT = {"N": 8}

FEW = (
    case("gemm", mnk(1, 48, 16)),
    case("gemm", mnk(2, 32, 16), {"BATCH": 2}),
    case("relu", {"M": 4, "N": 20}, NARROW),
    case("relu", {"M": 40, "N": 70}, LARGE),
    case("add", {"M": 4, "N": 16}, SLOW),
    case("gemm_requant", mnk(1, 16, 40)),
    case("conv2d", convolution(17, 1, 1, 32)),
    invented("gemm", 1, 12, 8),
    invented("linear_relu", 1, 4, 17),
    on("davinci_core", "half", 16, 16, 30, parameters={"GM_BYTES": 16}),
    on("vta", "two_products", 1, 32, 16, 16),
    on("tpu_v1", "two_products", 1, 16, 8, 8, parameters=SHORT),
)
"""Spaces of fewer than a hundred schedules, of every kind: for every run of the tests."""

TWICE = (
    on("davinci_core", "half", 16, 32, 16),
    on("davinci_core", "half", 32, 16, 16),
    on("davinci_core", "half", 16, 16, 48),
    on("davinci_core", "half", 16, 16, 80),
    on("davinci_core", "half", 7, 16, 33),
    on("davinci_core", "half", 16, 9, 64),
    on("davinci_core", "half", 17, 16, 15),
    on("davinci_core", "half", 16, 32, 16, parameters={"GM_LATENCY": 20}),
    on("davinci_core", "half", 16, 16, 48, parameters={"GM_BYTES": 16}),
    on("vta", "two_products", 2, 16, 16, 16),
    on("vta", "two_products", 1, 16, 16, 32),
    on("vta", "two_products", 1, 17, 33, 16),
    on("vta", "two_products", 1, 32, 32, 16),
    on("vta", "two_products", 2, 16, 16, 16, parameters=SLOW),
    on("tpu_v1", "two_products", 2, 4, 4, 8, parameters=SHORT),
    on("tpu_v1", "two_products", 1, 24, 8, 8, parameters=SHORT),
    on("tpu_v1", "two_products", 2, 8, 8, 8, parameters=SHORT),
)
"""Spaces of two levels of tiles, and of two accumulations."""

SMALL = (
    *FEW,
    case("gemm", mnk(1, 32, 32)),
    case("gemm", mnk(1, 64, 16)),
    case("gemm", mnk(1, 16, 64)),
    case("gemm", mnk(2, 17, 16)),
    case("gemm", mnk(1, 17, 33), {"BATCH": 2}),
    case("gemm", mnk(1, 31, 17), SLOW),
    case("matvec", {"M": 32, "K": 32}),
    case("matvec", {"M": 17, "K": 24}, {"BATCH": 2}),
    case("matvec", {"M": 17, "K": 24}, SLOW),
    case("matvec", {"M": 80, "K": 7}),
    case("relu", {"M": 2, "N": 32}),
    case("relu", {"M": 4, "N": 33}),
    case("relu", {"M": 12, "N": 16}),
    case("relu", {"M": 1, "N": 80}),
    case("relu", {"M": 4, "N": 33}, SLOW),
    case("relu", {"M": 4, "N": 33}, {"BATCH": 2}),
    case("add", {"M": 90, "N": 64}, LARGE),
    case("relu", {"M": 5, "N": 80}),
    case("gemm", mnk(96, 64, 64), LARGE),
    case("add", {"M": 2, "N": 16}),
    case("add", {"M": 3, "N": 10}),
    case("add", {"M": 1, "N": 40}),
    case("gemm_requant", mnk(2, 16, 16)),
    case("gemm_requant", mnk(1, 32, 16)),
    case("conv2d", convolution(16, 2, 2, 16)),
    invented("gemm", 1, 8, 16),
    invented("gemm", 1, 3, 40),
    invented("gemm", 1, 40, 8),
    invented("add", 3, 5, 1),
    invented("add", 1, 20, 1),
    *TWICE,
)
"""Spaces of some hundred schedules at most."""

MEDIUM = (
    case("conv2d", convolution(16, 1, 3, 17)),
    case("gemm", mnk(1, 9, 24), NARROW),
    invented("linear_relu", 2, 4, 8),
    case("gemm", mnk(2, 17, 33)),
    case("gemm", mnk(1, 17, 40)),
    case("gemm", mnk(3, 16, 32)),
    case("gemm", mnk(3, 48, 32)),
    case("gemm", mnk(5, 5, 5)),
    case("gemm", mnk(2, 32, 48), SLOW),
    case("gemm", mnk(2, 32, 16), NARROW),
    case("gemm", mnk(300, 64, 64), LARGE),
    case("gemm", mnk(16, 300, 192), LARGE),
    case("matvec", {"M": 40, "K": 17}),
    case("matvec", {"M": 64, "K": 48}, SLOW),
    case("relu", {"M": 8, "N": 80}),
    case("relu", {"M": 100, "N": 256}, LARGE),
    case("add", {"M": 4, "N": 33}),
    case("add", {"M": 400, "N": 64}, LARGE),
    case("gemm_requant", mnk(1, 17, 17)),
    case("gemm_requant", mnk(3, 16, 16)),
    case("gemm_requant", mnk(2, 32, 16), SLOW),
    case("gemm_requant", mnk(200, 64, 64), LARGE),
    case("conv2d", convolution(16, 3, 2, 16)),
    case("conv2d", convolution(16, 2, 2, 17)),
    case("conv2d", convolution(3, 2, 2, 16, 2)),
    case("conv2d_requant", convolution(16, 2, 2, 16)),
    case("depthwise_conv2d", {"C": 16, "H": 3, "W": 2, "R": 1, "P": 0}),
    invented("gemm", 2, 6, 12),
    invented("gemm", 3, 4, 17),
    invented("gemm", 1, 4, 330),
    invented("gemm", 5, 30, 8),
    invented("gemm", 1, 150, 8),
    invented("add", 2, 8, 1),
    invented("add", 12, 30, 1),
    invented("add", 3, 90, 1),
    invented("linear_relu", 1, 12, 8),
    invented("linear_relu", 1, 8, 16),
    invented("linear_relu", 3, 4, 17),
)
"""Further spaces, for the benchmark: up to some thousand schedules, also in tight memories."""
