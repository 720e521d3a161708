"""Where a search starts: a schedule whose edits say what is computed, and nothing about loops.

Rewrites (padding split off, intermediates inlined, narrow integers weighed) are edits of the user's
schedule, made before the search. What the search reads is the workload that these edits leave, with
a statement for each stage; what it decides are further edits of the same schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hwgen.errors import HwgenError
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.schedule.script import Edit
from hwgen.polyhedral.tree.build import build_state, stage_of
from hwgen.polyhedral.tree.loop_tree import RUNNING, LoopTree, Stage
from hwgen.polyhedral.tree.versions import versioned
from hwgen.spec.expression import Access, rename_tensors, replace_part
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Statement, Tensor, Workload


@dataclass(frozen=True)
class Start:
    """A schedule that a search goes on from: of the user's workload, `made` by edits if there are
    any."""

    given: Workload
    hardware: HardwareSpec
    made: Schedule | None = None

    @cached_property
    def schedule(self) -> Schedule:
        """The schedule, its edits checked: most starts are never gone on from.

        Raises:
            HwgenError: as `Schedule`, where nothing was edited; why the edits are refused.
        """
        if self.made is None:
            return Schedule(self.given, self.hardware)
        made = self.made.copy()
        made.settle()
        return made

    @property
    def state(self) -> LoopTree:
        """What the edits lead to, as it stands."""
        return (self.made or self.schedule).state

    @property
    def edits(self) -> Sequence[Edit]:
        """The edits that made it."""
        return self.made.edits() if self.made is not None else ()

    def edited(self, *edits: Callable[[Schedule], object]) -> Start:
        """The same after further edits.

        Raises:
            HwgenError: what the primitives raise.
        """
        made = (self.made or self.schedule).draft()
        for edit in edits:
            edit(made)
        return replace(self, made=made)

    def where_legal(self, edit: Callable[[Schedule], object]) -> Iterator[Start]:
        """The same after a further edit; nothing where that is refused."""
        try:
            made = self.edited(edit)
        except HwgenError as error:
            if error.code not in ("H413", "H414"):
                raise
            return
        yield made

    def inlined(self, tensor: str) -> Start:
        """The same with what defines a tensor in place of every read of it.

        Raises:
            HwgenError: H413 where that cannot be.
        """
        return self.edited(lambda s: s.compute_inline(tensor))

    def does(self, primitive: str) -> bool:
        """Whether one of its edits is a primitive."""
        return any(e.primitive == primitive for e in self.edits)

    @cached_property
    def trace(self) -> str:
        """The edits as text: what tells two starts of one workload apart."""
        return self.made.trace() if self.made is not None else ""

    @property
    def workload(self) -> Workload:
        """What is computed: a statement for each stage, of tensors that are each written whole by
        one statement or in parts by several."""
        return self._computed[0]

    @property
    def stages(self) -> Mapping[str, str]:
        """The stage of each statement, by its name; "" where it only begins another's elements."""
        return self._computed[1]

    @cached_property
    def _computed(self) -> tuple[Workload, Mapping[str, str]]:
        given, first = versioned(self.given), build_state(self.given)
        stages = dict(
            zip((s.name for s in self.given.statements), stage_of(self.given, first), strict=True)
        )
        if self.made is None:
            return given, stages
        return _Statements(given, first, self.made.state, stages).of_tree()


@dataclass
class _Statements:
    """The statements of a tree, by those that it was built from."""

    given: Workload
    first: LoopTree
    state: LoopTree
    stages: Mapping[str, str]

    @cached_property
    def tensor(self) -> Mapping[str, str]:
        """The tensor that a statement names for what a stage writes: parts of one have one name."""
        own = {s.name: s.target.tensor for s in self.given.statements}
        found = {stage: own[name] for name, stage in self.stages.items() if stage and name in own}
        for stage in reversed(self.state.stages):
            if stage.over and stage.over not in self.first.stage:
                found[stage.over] = found.get(stage.tensor, stage.tensor)
        return found

    def of_tree(self) -> tuple[Workload, Mapping[str, str]]:
        statements: list[Statement] = []
        stages: dict[str, str] = {}
        waiting = list(self.state.stages)
        for statement in self.given.statements:
            name = self.stages.get(statement.name, "")
            if name and name not in self.state.stage:
                continue
            while name and waiting[0].tensor != name:
                added = waiting.pop(0)
                if added.tensor not in self.first.stage:
                    suffix = added.tensor.removeprefix(f"{name}_")
                    own = replace(statement, name=f"{statement.name}_{suffix}")
                    statements += self._stated(own, added)
                    stages[own.name] = added.tensor
            stages[statement.name] = name
            if name and self.state.stage[name] != self.first.stage[name]:
                statements += self._stated(statement, waiting.pop(0))
            else:
                statements.append(statement)
        stages |= {s.name: "" for s in statements if s.name not in stages}
        return replace(
            self.given, tensors=self._tensors(statements), statements=tuple(statements)
        ), stages

    def _stated(self, like: Statement, stage: Stage) -> Iterator[Statement]:
        """A stage as a statement, before it one that sets what it starts from."""
        names = self.tensor
        target = Access(names.get(stage.tensor, stage.tensor), stage.target.indices)
        value = rename_tensors(replace_part(stage.value, RUNNING, target), names)
        made = replace(like, loops=stage.iterators, target=target, op=stage.op, value=value)
        if stage.seed is not None and stage.op != "=" and not like.continues:
            begin = rename_tensors(stage.seed, names)
            name = f"{like.name}_begin"
            yield replace(made, name=name, loops=stage.spatial, op="=", value=begin)
            made = replace(made, continues=True)
        yield made

    def _tensors(self, statements: list[Statement]) -> tuple[Tensor, ...]:
        used = {t for s in statements for t in (s.target.tensor, *s.reads)}
        # A name that inlining left may be another tensor's by now.
        made = {t.name: (t.dtype, t.shape) for t in self.state.tensors}
        kept = [
            t
            for t in self.given.tensors
            if t.role != "intermediate"
            or (t.name in used and made.get(t.name, (t.dtype, t.shape)) == (t.dtype, t.shape))
        ]
        where = self.given.location
        names = {t.name for t in kept}
        added = [
            Tensor(t.name, t.dtype, t.shape, t.role, t.role == "input", where, t.supplied)
            for t in self.state.tensors
            if t.name in used and t.name not in names
        ]
        return (*kept, *added)
