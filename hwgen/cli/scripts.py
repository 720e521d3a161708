"""`--script` and `--no-auto`: a schedule by hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Script:
    """A user's schedule: a file (None for none), and whether it is completed automatically."""

    path: Path | None = None
    auto: bool = True

    @property
    def given(self) -> bool:
        """Whether the user said anything about the schedule."""
        return self.path is not None or not self.auto

    def read(self) -> str | None:
        """The script's text.

        Raises:
            HwgenError: H001, H013, H418 where it cannot be read.
        """
        from hwgen.polyhedral.schedule.script import read_file

        return None if self.path is None else read_file(self.path)


NO_SCRIPT = Script()
