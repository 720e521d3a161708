"""What `--report` and `--trace` ask for: pages and traces of kernels, as files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hwgen.passes.compiled import Compiled


_REPORTS, _TRACES = (".html", ".svg"), (".json",)
_SUFFIXES = (*_REPORTS, *_TRACES, ".htm")
"""Suffixes of files: a path that ends so is no folder."""


@dataclass(frozen=True, slots=True)
class Pictures:
    """Where to write pages and traces: a folder, or a file by its suffix; None: nowhere."""

    report: Path | None = None
    trace: Path | None = None

    def check(self) -> None:
        """Refuse what cannot be written before anything is compiled.

        Raises:
            HwgenError: H009.
        """
        from hwgen.errors import HwgenError
        from hwgen.report.output import check_folder

        for option, path, suffixes in (
            ("--report", self.report, _REPORTS),
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

    def write(self, compiled: Sequence[Compiled]) -> list[str]:
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
            lines.append(_write("--report", self.report, suffix, make, compiled))
        if self.trace is not None:
            from hwgen.report.trace_events import trace

            lines.append(_write("--trace", self.trace, ".json", trace, compiled))
        return [line for line in lines if line]


def _write(
    option: str,
    path: Path,
    suffix: str,
    make: Callable[[Compiled], str],
    compiled: Sequence[Compiled],
) -> str:
    from hwgen.errors import HwgenError
    from hwgen.report.output import write_files

    if path.suffix.lower() == suffix:
        if len(compiled) > 1:
            raise HwgenError(
                "H009",
                f"a file of {option} is of one kernel",
                field=option,
                found=f"{path} for {len(compiled)} kernels",
                allowed="a folder, where there are several kernels",
                repair=f"write {option} {path.with_suffix('')}",
            )
        folder, names = path.parent, [path.name] * len(compiled)
    else:
        folder, names = path, [c.source.function + suffix for c in compiled]
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
    write_files(folder, {n: make(c) for n, c in zip(names, compiled, strict=True)})
    return f"wrote {', '.join(names)} to {folder}"
