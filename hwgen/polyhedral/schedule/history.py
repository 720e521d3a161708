"""What a schedule is at a time, and the edits that made it: `undo`, `trace`, `replay`, `batch`.

Every edit makes a new state, which is checked as a whole before it is taken: dependences, homes of
buffers, loops that run at once. A refused edit leaves the schedule as it was.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from hwgen.errors import HwgenError, Location, Tolerating
from hwgen.polyhedral import isl
from hwgen.polyhedral.schedule.arguments import Handle, call
from hwgen.polyhedral.schedule.placing import Made, named, texts
from hwgen.polyhedral.schedule.script import WORDS, Argument, Edit, Line, read, write
from hwgen.polyhedral.tree import placement
from hwgen.polyhedral.tree.build import build_state
from hwgen.polyhedral.tree.defined import check_defined
from hwgen.polyhedral.tree.edit import check_tensor, find_loop
from hwgen.polyhedral.tree.loop_tree import Homes, LoopTree
from hwgen.polyhedral.tree.render import buffer_text, render
from hwgen.polyhedral.tree.visibility import resolve
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.shown import Printed
from hwgen.spec.suggest import suggestion
from hwgen.spec.workload import Workload

if TYPE_CHECKING:
    from typing_extensions import Self


VIEWS = ("axis", "loops", "reduce_axis")
"""What a stage has that is no call."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A state, the edit that led to it, and what the check found out about it. `order`: in which
    the edits until then count, where that is another than they were made in."""

    state: LoopTree
    resolved: LoopTree
    homes: Homes
    edit: Edit | None
    order: tuple[Made, ...] | None = None


class History(Printed):
    """A workload's schedule for a chip, with the edits that led to it; the primitives, which edit
    it, are a subclass's."""

    def __init__(
        self,
        workload: Workload,
        hardware: HardwareSpec,
        resident: Mapping[str, str] | None = None,
    ) -> None:
        """Each statement gets a nest of its own, in textual order. `resident`: the memories of
        inputs that are on the chip already, and of outputs that stay there.

        Raises:
            HwgenError: H222, H225.
        """
        self.workload = workload
        self.hardware = hardware
        state = build_state(workload, resident)
        self._deferred, self._blamed, self._line = False, 0, 0
        # Names in edits, and of loops that stages lost when they were placed; some may be undone.
        self._named, self._lost = set[str](), set[str]()
        with isl.bounded():
            if not hardware.units:  # Of those, parts are scheduled too.
                check_defined(workload)
            self._steps = [_Step(state, *resolve(state, hardware), None)]

    # What there is

    @property
    def state(self) -> LoopTree:
        """The present state (immutable)."""
        return self._steps[-1].state

    @property
    def resolved(self) -> LoopTree:
        """The present state with a memory for every intermediate."""
        return self._steps[-1].resolved

    @property
    def homes(self) -> Mapping[str, tuple[str, ...]]:
        """Per tensor that stages write, the loops around the place where its buffer lives."""
        return MappingProxyType(self._steps[-1].homes)

    def loops(self, tensor: str = "") -> tuple[str, ...]:
        """All loops in textual order, or those around the block of one stage."""
        wanted = self.name(tensor)
        return placement.loops_of(self.state, wanted) if wanted else tuple(self.state.loop)

    def buffers(self) -> tuple[str, ...]:
        """Every tensor that the schedule reads or writes."""
        return tuple(t.name for t in self.state.tensors)

    def extent(self, loop: str) -> int:
        """How often a loop runs.

        Raises:
            HwgenError: H414.
        """
        return find_loop(self.state, self.name(loop)).extent

    def describe(self, tensor: str) -> str:
        """One line about a tensor's buffer.

        Raises:
            HwgenError: H414.
        """
        wanted = self.name(tensor)
        check_tensor(self.state, wanted)
        return buffer_text(self.resolved, wanted, self._steps[-1].homes)

    def __str__(self) -> str:
        return render(self.resolved, self._steps[-1].homes)

    def brief(self) -> str:
        return f"{self.workload.name} on {self.hardware.name}: {len(self.edits())} edits"

    # History

    def undo(self) -> None:
        """Take back the last edit; nothing happens where there is none.

        Of a batch whose parts are not legal alone, all is taken back.
        """
        steps = self._steps[:-1]
        while steps:
            last = steps[-1]
            try:
                with isl.bounded():
                    resolved, homes = resolve(last.state, self.hardware)
            except HwgenError:
                steps = steps[:-1]
                continue
            self._steps = [*steps[:-1], replace(last, resolved=resolved, homes=homes)]
            return

    def trace(self) -> str:
        """The edits so far, as a script that `replay` understands."""
        return write(self.edits())

    def copy(self) -> Self:
        """The same schedule, to be edited apart."""
        made = copy(self)
        made._steps = [*self._steps]
        made._named, made._lost = {*self._named}, {*self._lost}
        return made

    def draft(self) -> Self:
        """A copy whose edits are not checked until `settle`."""
        made = self.copy()
        made._deferred = True
        return made

    def settle(self) -> None:
        """Check the edits of a draft, which is one no more.

        Raises:
            HwgenError: why the schedule at its end is refused.
        """
        if self._deferred:
            self._settle(self._steps[:-1], blame=False)
            self._deferred = False

    def edits(self) -> list[Edit]:
        """The edits so far, as data."""
        return [s.edit for s in self._steps if s.edit is not None]

    def steps(self) -> list[tuple[LoopTree, Edit]]:
        """The edits so far, each with the state that it made."""
        return [(s.state, s.edit) for s in self._steps if s.edit is not None]

    def apply(self, edit: Edit) -> None:
        """Make an edit again.

        Raises:
            HwgenError: what the primitives raise.
        """
        getattr(self, edit.primitive)(*edit.arguments, **dict(edit.keywords))

    def replay(self, script: str, file: str = "script") -> Self:
        """Apply a script's edits after those already made; none of them where one is refused.

        Raises:
            HwgenError: H418 where the text is no script; what the primitives raise.
        """
        self._blamed = 0
        try:
            with self.batch():
                read(script, file, self._call)
        except HwgenError as error:
            if not self._blamed:
                raise
            raise error.at(Location(file, self._blamed, 1)) from None
        finally:
            self._line = 0
        return self

    @contextmanager
    def batch(self, *, blame: bool = True) -> Generator[None, None, None]:
        """Check the edits made inside once, at the end; all are taken back where one is refused.

        What counts is the schedule at the end: an edit that broke it may be mended by a later one.

        Raises:
            HwgenError: of the edit from which on the schedule is refused so; of the end, which is
                known sooner, where none is to `blame`.
        """
        before, outer = list(self._steps), self._deferred
        self._deferred = True
        try:
            yield
            if not outer and self._steps[-1] is not before[-1]:
                self._settle(before, blame)
        except BaseException:
            self._steps = before
            raise
        finally:
            self._deferred = outer

    def _settle(self, before: Sequence[_Step], blame: bool) -> None:
        """Check what a batch made: only its end, and backwards from there where that is refused."""
        known = {id(s) for s in before}
        made = [s for s in self._steps if id(s) not in known] or self._steps[-1:]
        with isl.bounded():
            try:
                resolved, homes = resolve(made[-1].state, self.hardware)
            except HwgenError as error:
                blamed, refused = made[-1].edit, error
                for number in reversed(range(len(made) - 1 if blame else 0)):
                    try:
                        resolve(made[number].state, self.hardware)
                        break
                    except HwgenError as earlier:
                        if earlier.code != error.code:
                            break
                        blamed, refused = made[number].edit, earlier
                self._blamed = blamed.line if blamed is not None else 0
                raise refused from None
        self._steps[-1] = replace(made[-1], resolved=resolved, homes=homes)

    def _call(self, line: Line) -> tuple[str, ...]:
        """Do what a line of a script says; the names of what that made."""
        self._line = line.number
        found = self._stage(line.stage) if line.stage else self
        known = [w for w in WORDS if hasattr(found, w)] + [*VIEWS] * bool(line.stage)
        if line.word not in known:
            raise HwgenError(
                "H418",
                f"no primitive {line.word}",
                found=line.word,
                allowed=", ".join(known),
                repair=suggestion(line.word, known) or "name one of the primitives",
            )
        made = getattr(found, line.word)
        if line.word not in VIEWS:
            made = call(made, line.arguments, line.keywords)
        match made:
            case None:
                return ()
            case str():
                return (made,)
            case _:
                return cast("tuple[str, ...]", made)

    def _stage(self, name: str) -> object:
        """One stage, with the words that are about it."""
        raise NotImplementedError

    def last_edit(self) -> tuple[int, Edit]:
        """The edit made last, and its number; there must be one."""
        edit = self._steps[-1].edit
        assert edit is not None
        return len(self._steps) - 1, edit

    def name(self, text: str) -> str:
        """The plain name of a loop or tensor.

        Raises:
            HwgenError: H414 where the edit that made it was undone: another may have the name now.
        """
        if not isinstance(text, Handle) or text.schedule is not self:
            return str(text)
        if all(step.edit is not text.edit for step in self._steps[text.number :][:1]):
            raise HwgenError(
                "H414",
                f"{text} is of an edit that was undone",
                found=write([text.edit]).rstrip(),
                allowed="what edits return that still hold",
                repair=f"take what the edit returned that was made since, or {str(text)!r}",
            )
        return str(text)

    def _commit(
        self,
        state: LoopTree,
        primitive: str,
        arguments: Sequence[Argument],
        keywords: dict[str, Argument],
        results: tuple[str, ...] = (),
    ) -> None:
        """Check the new state and take it."""
        edit = Edit(primitive, tuple(arguments), tuple(keywords.items()), results, self._line)
        self._take(state, edit)

    def _take(self, state: LoopTree, edit: Edit, order: tuple[Made, ...] | None = None) -> None:
        resolved, homes = state, self._steps[-1].homes
        if not self._deferred:
            with isl.bounded():
                resolved, homes = resolve(state, self.hardware)
        if edit.primitive == "compute_at":
            self._lost |= self.state.loop.keys() - state.loop.keys()
        self._named |= named(edit)
        self._steps.append(_Step(state, resolved, homes, edit, order))

    # Edits in another order

    def _order(self) -> list[Made]:
        """The edits in the order in which they count."""
        late: list[Made] = []
        for step in reversed(self._steps):
            if step.order is not None:
                return [*step.order, *reversed(late)]
            if step.edit is not None:
                late.append(Made(step.edit))
        return [*reversed(late)]

    def _again(self, order: tuple[Made, ...], edit: Edit) -> bool:
        """Take an edit that is among others in an order; whether these make what they did."""
        state = self._ordered(order)
        if state is not None:
            self._take(state, edit, order)
        return state is not None

    def _ordered(self, order: Sequence[Made]) -> LoopTree | None:
        """The state that edits lead to in an order; None where one is refused, or makes something
        else than it did."""
        made = self.copy()
        made._steps, made._deferred = made._steps[:1], True
        with Tolerating("H41"):
            for one in order:
                edit = one.edit
                if edit.primitive == "compute_at":
                    stage, loop = map(str, edit.arguments)
                    state = placement.at_group(made.state, stage, loop, units=one.units)
                    made._take(state, edit)
                else:
                    made.apply(edit)
                if made.last_edit()[1].results != edit.results:
                    return None
            return made.state
        return None

    @contextmanager
    def recalling(self, arguments: Sequence[Argument]) -> Generator[None, None, None]:
        """Names of loops of one iteration that stages lost when they were placed mean these loops,
        for an edit that names them and is not refused."""
        before = self._steps
        lost = [n for n in texts(arguments) if n in self._lost and n not in self.state.loop]
        for name in lost:
            self._steps = self._recalled(name, dict(self.state.gone).get(name, ""))
        try:
            yield
        except BaseException:
            self._steps = before if lost else self._steps
            raise

    def _recalled(self, name: str, why: str) -> list[_Step]:
        order = self._order()
        for number, (edit, units) in enumerate((m.edit, m.units) for m in order):
            if edit.primitive != "compute_at" or units:
                continue
            stage, loop = map(str, edit.arguments)
            if why == placement.made_anew(f"compute_at({stage!r}, {loop!r})", stage):
                given = (*order[:number], Made(edit, units=True), *order[number + 1 :])
                state = self._ordered(given)
                if state is not None and name in state.loop:
                    last = replace(self._steps[-1], state=state, resolved=state, order=given)
                    return [*self._steps[:-1], last]
        return self._steps
