"""Reports of an exploration's kernels, beside its page: one page for each different kernel.

A file's name has the hash of all that the kernel depends on, so that what is there already is not
compiled again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hwgen.errors import Diagnostic
from hwgen.exploration.results import Total
from hwgen.exploration.work import Work, kernel_of
from hwgen.report.html import page
from hwgen.report.output import write_files
from hwgen.verify.executors import Executor, Lost

_DIGITS = 16
"""Of a hash in a file's name."""


@dataclass(slots=True)
class Reports:
    """What was written to a folder. `kernels`: by chip, each kernel's name and where its report is
    from the folder's own; `new`, `kept`: files that were made, or were there; `missing`: why others
    are not."""

    folder: Path = Path()
    kernels: dict[Total, tuple[tuple[str, str], ...]] = field(
        default_factory=dict[Total, tuple[tuple[str, str], ...]]
    )
    new: int = 0
    kept: int = 0
    missing: list[Diagnostic] = field(default_factory=list[Diagnostic])

    def write(
        self,
        works: Mapping[Total, Sequence[tuple[str, Work]]],
        workers: Executor,
        told: Callable[[int, int], None],
    ) -> None:
        """Write the reports of chips' kernels, each as soon as it is there.

        Raises:
            HwgenError: H009 where one cannot be written; as compiling the kernel.
        """
        files = {w: _name(w) for own in works.values() for _, w in own}
        wanted: dict[str, Work] = {}
        for work, name in files.items():
            if not (self.folder / name).exists():
                wanted.setdefault(name, work)
        self.kept = len(set(files.values())) - len(wanted)
        names = [*wanted]
        lost: set[str] = set()
        for done, (number, text) in enumerate(workers.run(report_of, [*wanted.values()]), 1):
            if isinstance(text, Lost):
                self.missing.append(text.error.diagnostic)
                lost.add(names[number])
            else:
                write_files(self.folder, {names[number]: text})
                self.new += 1
            told(done, len(wanted))
        for total, own in works.items():
            self.kernels[total] = tuple(
                (label, f"{self.folder.name}/{files[work]}")
                for label, work in own
                if files[work] not in lost
            )


def _name(work: Work) -> str:
    return f"{work.workload.name}_{work.key[:_DIGITS]}.html"


def report_of(work: Work) -> str:
    """The report of a kernel; runs on a worker, and its search is in the cache there."""
    return page(kernel_of(work))
