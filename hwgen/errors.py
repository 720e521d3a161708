"""Coded errors: what was found, what is allowed, and the nearest repair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import TracebackType


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a user's file; `line` and `column` count from 1, 0 means unknown."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        parts = [self.file]
        if self.line:
            parts.append(str(self.line))
            if self.column:
                parts.append(str(self.column))
        return ":".join(parts)


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One error as data; `str()` is the text that the CLI prints and the goldens hold. `statement`:
    the name of the workload's statement that it is about, for who goes on from it."""

    code: str
    message: str
    location: Location | None = None
    field: str = ""
    found: str = ""
    allowed: str = ""
    repair: str = ""
    statement: str = ""

    def __str__(self) -> str:
        where = f"{self.location}: " if self.location else ""
        lines = [f"{where}error[{self.code}]: {self.message}"]
        for label, text in (
            ("field", self.field),
            ("found", self.found),
            ("allowed", self.allowed),
            ("repair", self.repair),
        ):
            if text:
                indented = text.replace("\n", "\n" + " " * 11)
                lines.append(f"  {label + ':':<9}{indented}")
        return "\n".join(lines)


class HwgenError(Exception):
    """Every error that a user can cause; carries one `Diagnostic`, or those of one file: the first
    is what `code` and `diagnostic` mean, all are in `diagnostics` and in the text.

    Codes: H00x and H04x command line and files, H01x YAML and JSON, H02x expressions, H03x fields,
    H05x calls from Python, H1xx spec, H2xx workload, H3xx matching, H4xx what one kernel can hold,
    and its schedule, H5xx layout and allocation, H6xx emission and lowering, H7xx checks of
    programs and results, H8xx models of whole networks.
    Each has one meaning, which a table under `docs/` gives; `docs/errors/` has a section for each.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        location: Location | None = None,
        field: str = "",
        found: str = "",
        allowed: str = "",
        repair: str = "",
        statement: str = "",
        told: Callable[[], tuple[str, str]] | None = None,
    ) -> None:
        """`told`: what was found and the repair, where these take long to find: asked for once
        somebody reads them, as most errors of a search are never read."""
        self._known = Diagnostic(code, message, location, field, found, allowed, repair, statement)
        self._told = told
        self.others: tuple[Diagnostic, ...] = ()
        super().__init__(code, message)

    @property
    def code(self) -> str:
        return self._known.code

    @property
    def statement(self) -> str:
        """The name of the workload's statement that it is about."""
        return self._known.statement

    @cached_property
    def diagnostic(self) -> Diagnostic:
        if self._told is None:
            return self._known
        found, repair = self._told()
        return replace(self._known, found=found, repair=repair)

    def __str__(self) -> str:
        return "\n".join(map(str, self.diagnostics))

    def at(self, location: Location, field: str = "") -> HwgenError:
        """The same error with a location (and field) where it had none."""
        known = self._known
        error = type(self)(known.code, known.message)
        error._known = replace(
            known, location=known.location or location, field=known.field or field
        )
        error._told = self._told
        return error.along_with(self.others)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """This error and the others of the same file."""
        return (self.diagnostic, *self.others)

    def along_with(self, others: Sequence[Diagnostic]) -> HwgenError:
        """This error, made to carry others of the same file."""
        self.others = tuple(others)
        return self


class Tolerating:
    """Ends a block at an error whose code begins with one of some, for who has another way to go
    on; `error` is that error then. Any other is raised.

    >>> with Tolerating(("H421", "H512")) as refused:
    ...     return compile_script(workload, hardware, script)
    """

    error: HwgenError

    def __init__(self, codes: str | tuple[str, ...]) -> None:
        self.codes = codes

    def __enter__(self) -> Tolerating:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, HwgenError) or not error.code.startswith(self.codes):
            return False
        self.error = error
        return True
