"""Where the threads of a block must wait: the fewest barriers by which all data that crosses
threads is there in time.

Places are compared as texts are read: a path of positions, a child at 2c + 1, the gap before it at
2c. A barrier covers a conflict if it stands between its two sides, in the same iteration of the
loops around both; for a conflict between iterations of a loop, after the first side or before the
second, in that loop's body.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from hwgen.codegen.processor.boxes import Use, block_uses
from hwgen.codegen.processor.launches import Kernel, Plan
from hwgen.codegen.processor.storage import Placed
from hwgen.codegen.storages import Array
from hwgen.errors import HwgenError
from hwgen.polyhedral import isl
from hwgen.polyhedral.tree.build import unique
from hwgen.polyhedral.tree.loop_tree import Block, Loop, LoopTree, Node, Site, first_of
from hwgen.polyhedral.tree.relations import combining
from hwgen.polyhedral.tree.terms import isl_text
from hwgen.spec.expression import Expr, Name, names, substitute
from hwgen.spec.hardware import HardwareSpec

Place = tuple[int, ...]
Barriers = dict[str, dict[int, str]]
"""Per body (a loop or a launch), the places before which a barrier stands, and for what."""


@dataclass(frozen=True, slots=True)
class Touch:
    """One access. `address`: over the loops; None: any place of the buffer."""

    buffer: str
    writes: bool
    address: Expr | None
    loops: tuple[Loop, ...]
    conditions: tuple[Expr, ...]
    keys: tuple[str, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Conflict:
    """Data of `first` is touched by another thread at `second`. `depth`: of the body in which a
    barrier must stand. `carried`: between iterations of that body's loop."""

    first: Touch
    second: Touch
    depth: int
    carried: bool

    @property
    def key(self) -> str:
        return self.first.keys[self.depth]

    def covered(self, wall: Place) -> bool:
        first, second = self.first.place, self.second.place
        if wall[: self.depth] != first[: self.depth] or len(wall) <= self.depth:
            return False
        if self.carried:
            return wall > first or wall < second
        return first < wall < second


def needed_barriers(
    state: LoopTree,
    hardware: HardwareSpec,
    placed: Mapping[str, Placed],
    extra: Mapping[str, Array],
    plan: Plan,
) -> Barriers:
    """The barriers of every launch.

    Raises:
        HwgenError: H624 data that crosses blocks of one launch.
    """
    result: Barriers = {}
    for kernel in plan.kernels.values():
        found = _Kernel(state, hardware, placed, extra, kernel)
        for key, gaps in found.barriers().items():
            result[key] = gaps
    return result


@dataclass(frozen=True)
class _Kernel:
    state: LoopTree
    hardware: HardwareSpec
    placed: Mapping[str, Placed]
    extra: Mapping[str, Array]
    kernel: Kernel

    def barriers(self) -> Barriers:
        if not self.kernel.coordinates:
            return {}
        touches, fixed = self.touches()
        self.check_blocks(touches)
        conflicts = [c for a in touches for b in touches for c in self.conflicts(a, b)]
        done: list[Place] = list(fixed)
        result: Barriers = {}
        bodies = dict.fromkeys((c.depth, c.first.place[: c.depth], c.key) for c in conflicts)
        for depth, prefix, key in sorted(bodies, key=lambda b: (-b[0], b[1], b[2])):
            own = [
                c
                for c in conflicts
                if (c.depth, c.first.place[:depth]) == (depth, prefix)
                and not any(c.covered(w) for w in done)
            ]
            for gap in _fewest(own, prefix):
                done.append((*prefix, gap))
                reasons = [c for c in own if c.covered((*prefix, gap))]
                text = ", ".join(dict.fromkeys(c.first.buffer for c in reasons))
                result.setdefault(key, {})[gap // 2] = text
        return result

    # What is touched

    def touches(self) -> tuple[list[Touch], list[Place]]:
        """Accesses to buffers that threads share, and the places where threads wait anyway."""
        found: list[Touch] = []
        fixed: list[Place] = []
        for site, place, keys in self.sites():
            threads = combining(self.state, site)
            conditions = [*site.block.predicate]
            if site.block.store_predicate is not None and not threads:
                conditions.append(site.block.store_predicate)
            target, *reads = block_uses(self.state, site.block, site.loops)
            if not threads:
                for use in (target, *reads):
                    found += self.touch(use, use.writes, tuple(conditions), keys, place)
                continue
            depth = site.loops.index(threads[0]) - len(self.kernel.around) + 1
            for use in reads:
                found += self.touch(use, False, tuple(conditions), keys, place)
            # Partial results start before the body of the threads' loop and meet after it.
            above, bodies = place[:depth], keys[: depth + 1]
            after = 2 * len(threads[0].body) + 1
            first = tuple(first_of(x.name) for x in threads)
            if site.block.part != "whole":
                found += self.touch(target, False, first, bodies, (*above, 0, 0))
            scratch = scratch_name(self.state, site.block)
            for n, writes in ((1, True), (3, False)):
                at = (*above, after, n)
                found.append(Touch(scratch, writes, None, site.loops, (), bodies, at))
            fixed.append((*above, after, 2))
            if self.repeats(site, threads):
                fixed.append((*above, after, 0))
            stored = site.block.store_predicate
            last = (stored,) if stored is not None else ()
            found += self.touch(target, True, last, bodies, (*above, after, 3))
        return found, fixed

    def repeats(self, site: Site, threads: tuple[Loop, ...]) -> bool:
        """Whether one thread's part has several elements, which then meet one by one."""
        spatial = {n for n, _ in self.state.stage[site.block.stage].spatial}
        used = {n for i, e in site.block.bindings if i in spatial for n in names(e)}
        inner = site.loops[site.loops.index(threads[0]) + 1 :]
        return any(x.name in used and self.ordered(x) for x in inner)

    def sites(self) -> Iterator[tuple[Site, Place, tuple[str, ...]]]:
        """Blocks of the launch, their places, and the body of each level."""

        def walk(
            nodes: tuple[Node, ...], around: tuple[Loop, ...], place: Place, keys: tuple[str, ...]
        ) -> Iterator[tuple[Site, Place, tuple[str, ...]]]:
            for n, node in enumerate(nodes):
                here = (*place, 2 * n + 1)
                match node:
                    case Block():
                        yield Site(node, around, ()), here, keys
                    case Loop():
                        yield from walk(node.body, (*around, node), here, (*keys, node.name))

        yield from walk(self.kernel.root, self.kernel.around, (), (self.kernel.name,))

    def touch(
        self,
        use: Use,
        writes: bool,
        conditions: tuple[Expr, ...],
        keys: tuple[str, ...],
        place: Place,
    ) -> list[Touch]:
        placed = self.placed[use.access.tensor]
        buffer = placed.buffer
        memory = self.hardware.memory.get(buffer.memory)
        if (memory is not None and memory.shared_by == "thread") or buffer.role == "input":
            return []
        return [Touch(buffer.name, writes, placed.flat(use), use.loops, conditions, keys, place)]

    # What crosses

    def buffer(self, name: str) -> Array:
        if name in self.extra:
            return self.extra[name]
        return next(p.buffer for p in self.placed.values() if p.buffer.name == name)

    def overlap(self, a: Touch, b: Touch) -> bool | None:
        """Whether two accesses may meet: None where their addresses say."""
        if a.buffer == b.buffer:
            return None if a.address is not None and b.address is not None else True
        x, y = self.buffer(a.buffer), self.buffer(b.buffer)
        if x.memory != y.memory or x.address_bytes is None or y.address_bytes is None:
            return False
        first, second = x.address_bytes, y.address_bytes
        return first < second + y.bytes and second < first + x.bytes

    def conflicts(self, a: Touch, b: Touch) -> Iterator[Conflict]:
        """Ways in which `b` comes after `a` and touches what another thread touched there."""
        meets = self.overlap(a, b)
        if meets is False or not (a.writes or b.writes):
            return
        common = 0
        while (
            common < min(len(a.place), len(b.place)) - 1 and a.place[common] == b.place[common]
            and common < min(len(a.keys), len(b.keys)) - 1
        ):  # fmt: skip
            common += 1
        outer = len(self.kernel.around)
        shared = a.loops[: outer + common]
        for level in range(common, 0, -1):
            loop = a.loops[outer + level - 1]
            if not self.ordered(loop):
                continue
            before = [x.name for x in shared[: outer + level - 1] if self.ordered(x)]
            if self.crosses(a, b, before, loop.name):
                yield Conflict(a, b, level, True)
        if a.place < b.place:
            before = [x.name for x in shared if self.ordered(x)]
            if self.crosses(a, b, before, ""):
                yield Conflict(a, b, common, False)

    def ordered(self, loop: Loop) -> bool:
        return self.hardware.machine.runs(loop.kind) != "bind"

    def crosses(self, a: Touch, b: Touch, equal: list[str], carrier: str) -> bool:
        """Whether two threads of one block meet, in the same iteration of the loops `equal` and,
        where there is a carrier, a later one of it."""
        conditions = [f"{n}' = {n}''" for n in equal]
        conditions += [f"{carrier}' < {carrier}''"] if carrier else []
        blocks, threads = self.coordinates(a, b)
        if not threads:
            return False
        conditions += [f"{x} = {y}" for x, y in blocks]
        conditions.append("(" + " or ".join(f"{x} != {y}" for x, y in threads) + ")")
        return self.meet(a, b, conditions)

    def coordinates(
        self, a: Touch, b: Touch
    ) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """Both sides' coordinates of blocks, and of threads."""
        levels: dict[str, list[tuple[str, str]]] = {"block": [], "thread": []}
        for kind, _, _ in self.kernel.coordinates:
            pair = tuple(
                next((f"{x.name}{mark}" for x in t.loops if x.kind == kind), "0")
                for t, mark in ((a, "'"), (b, "''"))
            )
            levels[self.hardware.machine.loop[kind].level].append((pair[0], pair[1]))
        return levels["block"], levels["thread"]

    def meet(self, a: Touch, b: Touch, conditions: list[str]) -> bool:
        sides: list[str] = []
        texts: list[str] = list(conditions)
        addresses: list[str] = []
        for touch, mark in ((a, "'"), (b, "''")):
            renamed = {x.name: Name(f"{x.name}{mark}") for x in touch.loops}
            sides.append(", ".join(f"{x.name}{mark}" for x in touch.loops))
            texts += [f"0 <= {x.name}{mark} < {x.extent}" for x in touch.loops]
            texts += [isl_text(substitute(c, renamed)) for c in touch.conditions]
            if touch.address is not None:
                addresses.append(isl_text(substitute(touch.address, renamed)))
        if self.overlap(a, b) is None:
            texts.append(f"{addresses[0]} = {addresses[1]}")
        pairs = f"{{ A[{sides[0]}] -> B[{sides[1]}] : {' and '.join(texts)} }}"
        return not isl.no_pair(pairs)

    def check_blocks(self, touches: list[Touch]) -> None:
        """Blocks of one launch cannot wait for each other."""
        for a in touches:
            memory = self.hardware.memory.get(self.buffer(a.buffer).memory)
            if memory is not None and memory.shared_by != "kernel":
                continue
            for b in touches:
                if a.writes and a.buffer == b.buffer:
                    blocks, _ = self.coordinates(a, b)
                    apart = " or ".join(f"{x} != {y}" for x, y in blocks)
                    host = [f"{x.name}' = {x.name}''" for x in self.kernel.around]
                    if blocks and self.meet(a, b, [*host, f"({apart})"]):
                        raise HwgenError(
                            "H624",
                            f"blocks of one launch exchange {a.buffer}",
                            found=f"{self.kernel.name} writes it in one block and touches it in "
                            "another",
                            allowed="data that stays in a block, or goes from launch to launch",
                            repair="give the two stages nests of their own (compute_root)",
                        )


def scratch_name(state: LoopTree, block: Block) -> str:
    """The buffer through which threads combine a stage's partial results."""
    return unique(f"{block.stage}_scratch", state.tensor)


def _fewest(conflicts: list[Conflict], prefix: Place) -> list[int]:
    """The least set of gaps of one body that covers all its conflicts; late ones rather."""
    if not conflicts:
        return []
    depth = len(prefix)
    places = [t.place[depth] for c in conflicts for t in (c.first, c.second)]
    gaps = sorted({p - 1 for p in places} | {p + 1 for p in places}, reverse=True)
    gaps = [g for g in gaps if any(c.covered((*prefix, g)) for c in conflicts)]
    for count in range(1, 4):
        for chosen in combinations(gaps, count):
            if all(any(c.covered((*prefix, g)) for g in chosen) for c in conflicts):
                return sorted(chosen)
    kept: list[int] = list(gaps)
    for gap in gaps:
        rest = [g for g in kept if g != gap]
        if all(any(c.covered((*prefix, g)) for g in rest) for c in conflicts):
            kept = rest
    return sorted(kept)
