"""Every error of one file: its parts are read one by one, and a bad one stops no other."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from hwgen.errors import Diagnostic, HwgenError

K = TypeVar("K")
T = TypeVar("T")


class ConsequenceError(HwgenError):
    """What is wrong only because of an error that is already known; never shown."""


class Findings:
    """The errors of a file so far. `broken`: names of the parts that have one; what refers to such
    a part is not judged."""

    def __init__(self) -> None:
        self.errors: list[HwgenError] = []
        self.broken: set[str] = set()
        self._noted = 0
        self._said: set[Diagnostic] = set()

    def note(self, error: HwgenError, name: str = "") -> None:
        """Take down an error, of the part of this name."""
        self._noted += 1
        # By an alias, one line of the file may be part of several fields.
        said = replace(error.diagnostic, field="")
        if said not in self._said and not isinstance(error, ConsequenceError):
            self._said.add(said)
            self.errors.append(error)
        if name:
            self.broken.add(name)

    def each(self, names: Iterable[K], read: Callable[[K], T]) -> tuple[T, ...]:
        """What is read for each of some things, without those that have an error; these are broken
        where they have a name."""
        found: list[T] = []
        for name in names:
            try:
                found.append(read(name))
            except HwgenError as error:
                self.note(error, name if isinstance(name, str) else "")
        return tuple(found)

    def attempt(self, read: Callable[[], T], instead: T) -> T:
        """What is read; or `instead`, so that reading can go on, where there is an error."""
        try:
            return read()
        except HwgenError as error:
            self.note(error)
            return instead

    @contextmanager
    def whole(self) -> Generator[None, None, None]:
        """Something that is read in parts; it is a consequence of theirs where one has an error.

        Raises:
            ConsequenceError: to be noted with the name of the whole.
        """
        before = self._noted
        yield
        if self._noted > before:
            raise ConsequenceError("H030", "a part has an error, which is noted")

    @contextmanager
    def reported(self) -> Generator[None, None, None]:
        """What reads a file.

        Raises:
            HwgenError: the errors found inside, as one: the first in the file, with the others.
        """
        try:
            yield
        except HwgenError as error:
            self.note(error)
        if self.errors:
            first, *others = sorted(self.errors, key=_place)
            raise first.along_with([d for e in others for d in e.diagnostics])


def _place(error: HwgenError) -> tuple[int, int]:
    where = error.diagnostic.location
    return (where.line, where.column) if where else (0, 0)
