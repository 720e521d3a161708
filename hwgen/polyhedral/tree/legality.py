"""Legality of a whole state: every value read is complete and right, whatever edits led here.

Every tensor is defined by one stage, so a schedule is right exactly when, for some home of each
tensor (a common prefix of the loops around its accesses),

0. every instance is one of a point of its stage;
1. whatever an instance reads was produced before it in the same iteration of the home;
2. a reduction adds each contribution once per home iteration, after its initialisation and before
   any reader there; in the iterators' order where it must;
3. the home of an output, and of what nobody reads, is the whole kernel, and every element of it is
   computed;
4. loops that do not run in order carry no conflict on a tensor that lives outside them;
5. where blocks run later than their own iterations, a slot is read to the end before another
   iteration of the home takes it.

The deepest such home is chosen. Nothing here looks at how a state was made.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from itertools import product
from math import prod

from hwgen.errors import HwgenError
from hwgen.polyhedral import isl
from hwgen.polyhedral.same import Same
from hwgen.polyhedral.tree.by_indices import (
    first_is_first,
    makes_all,
    makes_read,
    never_read,
    together,
)
from hwgen.polyhedral.tree.decided import Index, decided
from hwgen.polyhedral.tree.loop_tree import Homes, LoopTree, Site, Stage, first_of
from hwgen.polyhedral.tree.pipelines import check_shifts
from hwgen.polyhedral.tree.relations import (
    NEVER,
    Side,
    before,
    conjoin,
    equal,
    not_before,
    same,
    shared,
    side_of,
    some_pair,
)
from hwgen.polyhedral.tree.remembered import Remembered, block_key, tensors_key
from hwgen.polyhedral.tree.rolling import taken_too_early
from hwgen.polyhedral.tree.site_checks import (
    check_inside,
    check_kept,
    check_parallel,
    check_store,
    check_written,
)
from hwgen.polyhedral.tree.witnesses import (
    POINT,
    Violation,
    pair_text,
    point_text,
    stage_domain,
    stage_elements,
    stage_point,
)
from hwgen.spec.expression import Access, evaluate, names, substitute


def check(state: LoopTree, depths: Mapping[str, int] | None = None) -> Homes:
    """The home of every tensor that stages write; `depths` limits the loops around some.

    Raises:
        HwgenError: H411 a broken dependence, H412 a conflict between iterations that run at once;
            both with two instances.
    """
    check_shifts(state)
    for site in state.sites:
        _inside.once(block_key(state, site), partial(check_inside, state, site))
    for stage in state.stages:
        check_kept(state, stage)
    homes: Homes = {}
    for stage in state.stages:
        limit = (depths or {}).get(stage.tensor, 99)
        about = limit, stage.tensor, tensors_key(state, state.versions[stage.tensor])
        homes[stage.tensor] = _known_homes.once(about, partial(_home, state, stage, limit))
    for site in state.sites:
        check_store(state, site)
        _written.once(_reads_key(state, site), partial(check_written, state, site))
    check_parallel(state, homes)
    return homes


_inside, _written = Remembered[None](), Remembered[None]()
_known_homes = Remembered[tuple[str, ...]]()


def forget() -> None:
    """Find all of it out anew: for who changes what is legal."""
    for known in (_inside, _written, _known_homes):
        known.forget()


def _reads_key(state: LoopTree, site: Site) -> Hashable:
    """A block, and who writes what it reads."""
    reads = state.stage[site.block.stage].reads_in(site.block.part)
    versions = (v for r in reads for v in state.versions.get(r.tensor, ()))
    made = tuple((Same(state.stage[v]), state.tensor[v].shape) for v in versions)
    return block_key(state, site), made, state.rewritten


def _home(state: LoopTree, stage: Stage, limit: int) -> tuple[str, ...]:
    accesses = state.users[stage.tensor]
    depth = min(limit, *(shared(accesses[0], s) for s in accesses), len(accesses[0].loops))
    # Where one iteration may need as much as all, none has a tile of its own.
    around = accesses[0].loops[:depth]
    alone = _written_first(stage, accesses)
    depth = next((n for n, x in enumerate(around) if x.turns or x.name in alone), depth)
    # What nobody reads is for later.
    output = state.tensor[stage.tensor].role == "output" or all(
        s.block.stage == stage.tensor for s in accesses
    )
    found: Violation | None = None
    for d in (0,) if output else range(depth, -1, -1):
        found = (
            violation(state, stage, d, output=output)
            or overtaken(state, [stage.tensor], d)
            or reused(state, state.versions[stage.tensor], d)
        )
        if found is None:
            return accesses[0].names[:d]
    assert found is not None
    raise HwgenError(
        "H411",
        f"the schedule breaks a dependence on {stage.tensor}",
        found=str(found),
        allowed="every value complete before it is read, every contribution added once",
        repair="keep the loops that carry this dependence outside and in order",
    )


def _written_first(stage: Stage, accesses: Sequence[Site]) -> set[str]:
    """Loops in whose first iterations alone a tensor is written, and in all others read: its home
    is around them."""
    makes = [s for s in accesses if s.block.stage == stage.tensor and s.block.part != "init"]
    reads = [s for s in accesses if s.block.stage != stage.tensor]
    found = {x.name for s in reads for x in s.loops if x.extent > 1 and _runs_again(s, x.name)}
    return {n for n in found if all(first_of(n) in s.block.predicate for s in makes)}


def _runs_again(site: Site, loop: str) -> bool:
    """Whether a block runs in a loop's second iteration, the first ones of all others."""
    point = dict.fromkeys(site.names, 0) | {loop: 1}
    return all(evaluate(p, point) for p in site.block.predicate)


def violation(state: LoopTree, stage: Stage, depth: int, *, output: bool) -> Violation | None:
    """The first broken condition where a tensor's home is the outermost `depth` loops."""
    writers = state.sites_of(stage.tensor)
    compute = next(s for s in writers if s.block.part != "init")
    init = next((s for s in writers if s.block.part == "init"), None)
    found = _accumulation(state, compute, init, depth) if stage.reduces else None
    if found is not None:
        return found
    if output:
        found = _coverage(state, compute)
    for reader in state.users[stage.tensor]:
        if found is None:
            for access in state.stage[reader.block.stage].reads_in(reader.block.part):
                if stage.tensor in state.versions.get(access.tensor, ()):
                    found = found or _flow(state, compute, reader, access, depth)
    return found


def overtaken(state: LoopTree, tensors: Sequence[str], depth: int) -> Violation | None:
    """A slot of tensors in the place of the first is taken again, by a tile as many further as
    there are slots, before its last use; their home is the outermost `depth` loops.

    Where an index does not depend on these loops, and the layout is the tensor's own, elements of
    two tiles are in one place only if they have it in common: a slot is taken again part by part.
    """
    slots = state.place(tensors[0]).slots
    users = state.users_of_any(tensors)
    if not depth or not any(s.block.shifts or s.block.band for s in users):
        return None
    alone = len(tensors) == 1 and not state.place(tensors[0]).layout
    still = _still(state, users, tensors[0], depth) if alone else []
    for user, writer in product(users, users):
        u, w = side_of(state, user, "'"), side_of(state, writer, "''")
        if writer.block.stage not in tensors or _in_step(u, w, depth, slots):
            continue
        made = w.element(w.stage.target)
        used = [u.element(a) for a in _accesses(state, user, tensors[0])]
        in_common = [conjoin([f"{e[d]} = {made[d]}" for d in still]) for e in used]
        place = [f"({' or '.join(f'({x})' for x in in_common)})"] if still else []
        ahead = f"{_tile(w, depth)} - ({_tile(u, depth)})"
        pair = isl.some_pair(
            f"{{ {u.tuple} -> {w.tuple} : "
            + conjoin(
                u.domain, w.domain, place, [f"{ahead} >= {slots}", f"({ahead}) mod {slots} = 0"]
            )
            + f" and {not_before(u, w)} }}"
        )
        if pair is not None:
            further = _further(user, pair, depth)
            return Violation(
                f"{user.block.name} uses a tile of {tensors[0]} after {writer.block.name} has made "
                f"the one {further} iterations later, and there are {slots} slots",
                *pair_text(pair, u.names, w.names),
            )
    return None


def _in_step(user: Side, writer: Side, depth: int, slots: int) -> bool:
    """Whether a block never makes a tile as many further as there are slots, in the outermost
    `depth` loops, while another is at an earlier one: it runs not so much earlier."""
    one, other = user.site, writer.site
    starts = [x.start for x in (one, other) if x.start is not None and x.start < depth]
    if not starts:
        sooner = one.delays[0] - other.delays[0]
        return one.delays[:depth] == other.delays[:depth] or (depth == 1 and sooner < slots)
    common = shared(one, other)
    if min(starts) > 0:
        return False
    tile = prod(x.extent for x in one.loops[depth:common])
    return slots * tile > user.span(common, tile)[1] - writer.span(common, tile)[0]


def _still(state: LoopTree, users: Sequence[Site], tensor: str, depth: int) -> list[int]:
    """The dimensions along which the outermost `depth` loops move no access to a tensor."""
    moving = set(users[0].names[:depth])
    indices = [
        substitute(index, site.block.binding)
        for site in users
        for access in _accesses(state, site, tensor)
        for index in access.indices
    ]
    rank = len(state.tensor[tensor].shape)
    return [d for d in range(rank) if all(moving.isdisjoint(names(i)) for i in indices[d::rank])]


def _accesses(state: LoopTree, site: Site, tensor: str) -> list[Access]:
    """A block's accesses to a tensor."""
    stage = state.stage[site.block.stage]
    reads = [
        r
        for r in stage.reads_in(site.block.part)
        if tensor in state.versions.get(r.tensor, (r.tensor,))
    ]
    return [stage.target, *reads] if stage.tensor == tensor else reads


def reused(state: LoopTree, tensors: Sequence[str], depth: int) -> Violation | None:
    """An element of tensors in one place is used after another has taken its place."""
    found = taken_too_early(state, tensors, depth)
    if found is None:
        return None
    user, writer, pair = found
    return Violation(
        f"{user.block.name} uses an element of {tensors[0]} after {writer.block.name} has made "
        "another in its place",
        *pair_text(pair, user.names, writer.names),
    )


def _tile(side: Side, depth: int) -> str:
    """The number of the tile that an instance touches, of a tensor with this home."""
    extents = [x.extent for x in side.site.loops[:depth]]
    return " + ".join(f"{prod(extents[n + 1 :])}*{x}" for n, x in enumerate(side.names[:depth]))


def _further(site: Site, pair: isl.Pair, depth: int) -> int:
    """How many tiles further the second of two instances is."""
    (_, first), (_, second) = pair
    result = 0
    for loop, a, b in zip(site.loops[:depth], first, second, strict=False):
        result = result * loop.extent + b - a
    return result


def _bound(side: Side, suffix: str) -> list[str]:
    """The stage's iterators, under a suffix, are what the instance binds them to."""
    binding = side.block.binding
    return [
        f"{n}{suffix} = {side.own(binding[n])}" for n, _ in side.stage.iterators if n in binding
    ]


def _flow(
    state: LoopTree, writer: Site, reader: Site, access: Access, depth: int
) -> Violation | None:
    """Everything that makes up a read element has run before, in the same home iteration."""
    w, r = side_of(state, writer, "'"), side_of(state, reader, "''")
    stage = w.stage
    late = not_before(w, r, depth)
    if never_read(stage, r, access) or (late == NEVER and makes_read(w, r, access, depth)):
        return None
    in_time = late == NEVER and together(r, access, w, stage.target) >= depth
    if not in_time and not _made_again(w, depth):
        # Where no point is computed twice, one emptiness check decides.
        elements = equal(r.element(access), w.element(stage.target))
        if depth:
            late = f"({late} or not ({conjoin(same(w, r, depth))}))"
        in_time = isl.no_pair(
            f"{{ {r.tuple} -> {w.tuple} : {conjoin(r.domain, w.domain, elements)} and {late} }}"
        )
    if in_time and _coverage(state, writer) is None:
        return None
    needed = (
        f"{{ {r.tuple} -> {stage_point(stage, POINT)} : "
        + conjoin(
            r.domain,
            stage_domain(stage, POINT),
            equal(r.element(access), stage_elements(stage, stage.target, POINT)),
        )
        + " }"
    )
    w = w.rejoined(shared(writer, reader))
    ran = (
        f"{{ {r.tuple} -> {stage_point(stage, POINT)} : exists ({', '.join(w.names) or 'z'} : "
        + conjoin(r.domain, w.domain, same(w, r, depth), [before(w, r, depth)], _bound(w, POINT))
        + ") }"
    )
    missing = isl.some_pair(needed, ran)
    if missing is None:
        return None
    reads, makes = pair_text(missing, r.names, [n for n, _ in stage.iterators])
    return Violation(f"{reads} reads {access.tensor} before what it needs has run", reads, makes)


def _once(side: Side, depth: int) -> bool:
    """Whether what a block computes tells in which iteration of its loops it does, given those of
    the outermost `depth` ones."""
    indices = [Index(f.terms) for f in side.makes.values() if f is not None]
    return decided(indices, side.site.extents, side.site.names[:depth]) >= {*side.site.names}


def _made_again(writer: Side, depth: int) -> bool:
    """Whether each iteration of one of the outermost `depth` loops makes the same elements."""
    indices = (substitute(i, writer.block.binding) for i in writer.stage.target.indices)
    moving = {n for e in (*indices, *writer.block.predicate) for n in names(e)}
    return any(x.extent > 1 and x.name not in moving for x in writer.site.loops[:depth])


def _coverage(state: LoopTree, writer: Site) -> Violation | None:
    """Every point of a stage runs."""
    w = side_of(state, writer, "'")
    if makes_all(w):
        return None
    w, stage = w.rejoined(0), w.stage
    ran = (
        f"{{ {stage_point(stage, POINT)} : exists ({', '.join(w.names) or 'z'} : "
        + conjoin(w.domain, _bound(w, POINT))
        + ") }"
    )
    whole = f"{{ {stage_point(stage, POINT)} : {conjoin(stage_domain(stage, POINT))} }}"
    missing = isl.some_point(whole, ran)
    if missing is None:
        return None
    point = point_text(missing, [n for n, _ in stage.iterators])
    return Violation("a part of the stage never runs", point, f"no instance of {stage.tensor}")


def _accumulation(
    state: LoopTree, compute: Site, init: Site | None, depth: int
) -> Violation | None:
    """Each contribution once per home iteration, after the initialisation, before any reader."""
    a, b = side_of(state, compute, "'"), side_of(state, compute, "''")
    stage = a.stage
    target = equal(a.element(stage.target), b.element(stage.target))
    home = same(a, b, depth)
    # The same point of the stage at two instances of one home iteration.
    point = [f"{a.own(e)} = {b.own(e)}" for _, e in a.block.bindings]
    different = (
        "(" + " or ".join(f"{x} != {y}" for x, y in zip(a.names, b.names, strict=True)) + ")"
    )
    if not _once(a, depth):
        twice = some_pair(a, b, different, home, point)
        if twice is not None:
            return Violation("one contribution is added twice", *pair_text(twice, a.names, b.names))
    if stage.ordered and (wrong := _misordered(a, b, depth)) is not None:
        return wrong
    if stage.continues:
        pass  # What it adds to is read, and must be there.
    elif init is None and compute.block.part == "update":
        return Violation("no contribution has an initialisation", compute.block.name, "none")
    elif init is None:
        first = [f"{a.own(a.block.binding[n])} = 0" for n, _ in stage.reduction]
        # Another one that does not run before is the later one, unless several run at once.
        earlier = NEVER if first_is_first(a, depth) else before(b, a, depth)
        if compute.start is not None:
            itself = conjoin(same(a, b, len(a.names)))
            earlier = f"{not_before(a, b, depth)} and not ({itself})"
        late = some_pair(a, b, earlier, home, target, first)
        if late is not None:
            return Violation(
                "the contribution that initialises comes late", *pair_text(late, a.names, b.names)
            )
    else:
        i = side_of(state, init, "'''")
        elements = equal(i.element(stage.target), b.element(stage.target))
        alike = together(i, stage.target, b, stage.target, depth)
        late = some_pair(i, b, not_before(i, b, alike), same(i, b, depth), elements)
        if late is not None:
            return Violation(
                "an initialisation comes after a contribution", *pair_text(late, i.names, b.names)
            )
        if not makes_read(i, b, stage.target, depth):
            started = (
                f"{{ {b.tuple} : exists ({', '.join(i.names) or 'z'} : "
                f"{conjoin(i.domain, b.domain, same(i, b, depth), elements)}) }}"
            )
            missing = isl.some_point(f"{{ {b.tuple} : {conjoin(b.domain)} }}", started)
            if missing is not None:
                point = point_text(missing, b.names)
                return Violation("a contribution has no initialisation", point, init.block.name)
    return _early_readers(state, compute, depth)


def _misordered(a: Side, b: Side, depth: int) -> Violation | None:
    """Contributions to one element, each made from the last one, run in the iterators' order."""
    stage = a.stage
    target = equal(a.element(stage.target), b.element(stage.target))
    mine, other = ([side.own(side.block.binding[n]) for n, _ in stage.reduction] for side in (a, b))
    ways = [
        conjoin(equal(mine[:n], other[:n]), [f"{mine[n]} < {other[n]}"]) for n in range(len(mine))
    ]
    if not ways:
        return None
    earlier = "(" + " or ".join(f"({w})" for w in ways) + ")"
    pair = some_pair(a, b, not_before(a, b, depth), same(a, b, depth), target, [earlier])
    if pair is None:
        return None
    first, second = pair_text(pair, a.names, b.names)
    return Violation(f"{second} takes its value from an earlier iteration", first, second)


def _early_readers(state: LoopTree, compute: Site, depth: int) -> Violation | None:
    """No contribution runs after a reader of its element in the same home iteration."""
    w = side_of(state, compute, "'")
    for reader in state.users[w.stage.tensor]:
        r = side_of(state, reader, "''")
        for access in r.stage.reads_in(reader.block.part):
            mine = w.stage.tensor in state.versions.get(access.tensor, ())
            if not mine or never_read(w.stage, r, access):
                continue
            elements = equal(r.element(access), w.element(w.stage.target))
            alike = together(w, w.stage.target, r, access, depth)
            late = some_pair(r, w, not_before(w, r, alike), same(w, r, depth), elements)
            if late is not None:
                reads, adds = pair_text(late, r.names, w.names)
                return Violation(f"{reads} reads {access.tensor} before all is added", reads, adds)
    return None
