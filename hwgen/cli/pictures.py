"""What `--report` and `--trace` ask for: pages and traces of kernels, as files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hwgen.passes.kernel import Kernel


_REPORTS, _TRACES = (".html", ".svg"), (".json",)
_SUFFIXES = (*_REPORTS, *_TRACES, ".htm")
"""Suffixes of files: a path that ends so is no folder."""


@dataclass(frozen=True, slots=True)
class Pictures:
    """Where to write pages and traces: a folder, or a file by its suffix; None: nowhere."""

    report: Path | None = None
    trace: Path | None = None
    reports: tuple[str, ...] = _REPORTS
    """Suffixes of files that a report may be."""

    def check(self) -> None:
        """Refuse what cannot be written before anything is compiled.

        Raises:
            HwgenError: H009.
        """
        from hwgen.errors import HwgenError
        from hwgen.report.output import check_folder

        for option, path, suffixes in (
            ("--report", self.report, self.reports),
            ("--trace", self.trace, _TRACES),
        ):
            if path is None:
                continue
            own = path.suffix.lower() in suffixes
            if not own and path.suffix.lower() in _SUFFIXES and not path.is_dir():
                raise HwgenError(
                    "H009",
                    f"{option} writes no {path.suffix} file",
                    field=option,
                    found=str(path),
                    allowed=f"a folder, or a file that ends in {' or '.join(suffixes)}",
                    repair=f"write {option} {path.with_suffix(suffixes[0])}",
                )
            check_folder(path.parent if own else path)

    def write(self, compiled: Sequence[Kernel]) -> list[str]:
        """Write what was asked for; returns a line for each option.

        Raises:
            HwgenError: H009 where a file is to hold several kernels or cannot be written.
        """
        lines: list[str] = []
        if self.report is not None:
            from hwgen.report.html import page
            from hwgen.report.svg import picture

            drawn = self.report.suffix.lower() == ".svg"
            suffix, make = (".svg", picture) if drawn else (".html", page)
            lines.append(_write("--report", self.report, suffix, _by_name(make, compiled)))
        if self.trace is not None:
            from hwgen.report.trace_events import trace

            lines.append(_write("--trace", self.trace, ".json", _by_name(trace, compiled)))
        return [line for line in lines if line]

    def write_page(self, name: str, make: Callable[[], str]) -> list[str]:
        """Write the one page of something else; returns a line where it was asked for.

        Raises:
            HwgenError: H009 where it cannot be written.
        """
        return [_write("--report", self.report, ".html", [(name, make)])] if self.report else []


_Named = Sequence[tuple[str, Callable[[], str]]]
"""Names of files, without their suffix, and what makes their text."""


def _by_name(make: Callable[[Kernel], str], compiled: Sequence[Kernel]) -> _Named:
    return [(c.source.function, partial(make, c)) for c in compiled]


def _write(option: str, path: Path, suffix: str, wanted: _Named) -> str:
    from hwgen.errors import HwgenError
    from hwgen.report.output import write_files

    if path.suffix.lower() == suffix:
        if len(wanted) > 1:
            raise HwgenError(
                "H009",
                f"a file of {option} is of one kernel",
                field=option,
                found=f"{path} for {len(wanted)} kernels",
                allowed="a folder, where there are several kernels",
                repair=f"write {option} {path.with_suffix('')}",
            )
        folder, names = path.parent, [path.name] * len(wanted)
    else:
        folder, names = path, [name + suffix for name, _ in wanted]
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1).removesuffix(suffix)
        raise HwgenError(
            "H009",
            f"two workloads are called {twice}",
            field=option,
            repair="write them into different folders",
        )
    if not names:
        return ""
    write_files(folder, {n: make() for n, (_, make) in zip(names, wanted, strict=True)})
    return f"wrote {', '.join(names)} to {folder}"
