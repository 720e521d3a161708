"""Repairs that declare tensors in other types: offered where what follows from them is well typed
and covers the statement that failed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hwgen.errors import HwgenError
from hwgen.polyhedral.scop import Scop, ScopStatement, scop_of_nest
from hwgen.spec.expression import Access, Assign, Expr, Name, replace_part
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.typecheck import ExpressionTypeError, check_assign, is_float
from hwgen.spec.workload import Statement, Workload


@dataclass(frozen=True, slots=True)
class Change:
    """Tensors in new types, and a part of the statement's value in a new form."""

    tensors: tuple[tuple[str, str], ...] = ()
    old: Expr | None = None
    new: Expr | None = None


class Retyper:
    """Tries changes of one workload; what was found is kept."""

    def __init__(self, scop: Scop, hardware: HardwareSpec) -> None:
        self.scop = scop
        self.hardware = hardware
        self.tried: dict[tuple[str, Change], str | None] = {}

    def repair(self, statement: ScopStatement, change: Change, result: str) -> str:
        """The repair in words, of a statement whose results are kept as `result`; "" where it
        would only lead to another error."""
        tensors = tuple((shown(self.scop, n), dtype) for n, dtype in change.tensors)
        if len({n for n, _ in tensors}) < len(set(tensors)):
            return ""  # One tensor in two types.
        change = replace(change, tensors=tuple(dict.fromkeys(tensors)))
        for wanted in (change, self._with_others(change, result)):
            key = (statement.name, wanted)
            if key not in self.tried:
                self.tried[key] = self._follow(statement, wanted)
            after = self.tried[key]
            if after is not None:
                return self._words(wanted) + (f"; then {after}" if after else "")
        return ""

    def _with_others(self, change: Change, result: str) -> Change:
        """Every other tensor of another kind in the type of the results."""
        kept = {n for n, _ in change.tensors} | set(self.scop.view)
        others = tuple(
            (t.name, result)
            for t in self.scop.workload.tensors
            if t.name not in kept and is_float(t.dtype) != is_float(result)
        )
        return replace(change, tensors=(*change.tensors, *others))

    def _follow(self, statement: ScopStatement, change: Change) -> str | None:
        """What remains to be repaired behind the statement; None where the change does not help."""
        from hwgen.polyhedral.match.select import outcome

        workload = self._changed(statement, change)
        if workload is None:
            return None
        position = [s.name for s in self.scop.statements].index(statement.name)
        try:
            scop = scop_of_nest(workload)
        except HwgenError:
            return None
        if scop is None:
            return None
        found = outcome(scop, self.hardware, trial=True)
        if found.error is None:
            return ""
        if found.reached <= position or found.error.code != "H301":
            return None
        return found.error.diagnostic.repair

    def _changed(self, statement: ScopStatement, change: Change) -> Workload | None:
        """The workload after the change; None where that is ill typed."""
        old = self.scop.workload
        dtypes = self._dtypes(change)
        if set(dtypes) - set(old.tensor):
            return None
        if all(old.tensor[n].dtype == d for n, d in dtypes.items()) and change.new is None:
            return None
        tensors = tuple(replace(t, dtype=dtypes.get(t.name, t.dtype)) for t in old.tensors)
        statements = tuple(
            self._rewritten(s, change) if s is statement.source else s for s in old.statements
        )
        if change.new is not None and statements == old.statements:
            return None
        kinds = {t.name: t.dtype for t in tensors}

        def type_of(node: Access | Name) -> str:
            return kinds[node.tensor] if isinstance(node, Access) else "int32"

        try:
            for s in statements:
                check_assign(Assign(s.target, s.op, s.value), type_of)
        except ExpressionTypeError:
            return None
        return replace(old, tensors=tensors, statements=statements)

    def _dtypes(self, change: Change) -> dict[str, str]:
        """New types by tensor: what rearranges an input has its type."""
        dtypes = dict(change.tensors)
        sources = {view.tensor: shown(self.scop, view.tensor) for view in self.scop.views}
        return dtypes | {n: dtypes[s] for n, s in sources.items() if s in dtypes}

    @staticmethod
    def _rewritten(source: Statement, change: Change) -> Statement:
        if change.old is None or change.new is None:
            return source
        return replace(source, value=replace_part(source.value, change.old, change.new))

    def _words(self, change: Change) -> str:
        """`declare a and b as int8 and c as int32`."""
        groups: dict[str, list[str]] = {}
        declared = self.scop.workload.tensor
        for name, dtype in self._dtypes(change).items():
            if declared[name].dtype != dtype:
                groups.setdefault(dtype, []).append(name)
        parts = [f"{_listed(names)} as {dtype}" for dtype, names in groups.items()]
        told = [f"declare {_listed(parts)}"] if parts else []
        told += [f"write `{change.new}`"] if change.new is not None else []
        return " and ".join(told)


def _listed(words: list[str]) -> str:
    return " and ".join([*([", ".join(words[:-1])] if words[1:] else []), words[-1]])


def shown(scop: Scop, tensor: str) -> str:
    """The declared tensor that a view shows; a tensor that is none as it is."""
    while tensor in scop.view:
        tensor = scop.view[tensor].source
    return tensor
