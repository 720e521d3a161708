"""The page and the trace of a kernel, whatever kind of chip it is for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwgen.nest_pipeline import NestCompilation

if TYPE_CHECKING:
    from hwgen.compiled import Compiled


def page_of(compilation: Compiled) -> str:
    """The HTML page of a kernel.

    Raises:
        HwgenError: as `simulate_timing`, for chips with units.
    """
    if isinstance(compilation, NestCompilation):
        from hwgen.report.nest_page import nest_page

        return nest_page(compilation)
    from hwgen.report.html import page

    return page(compilation)


def trace_of(compilation: Compiled) -> str:
    """The trace of a kernel, for Perfetto and chrome://tracing.

    Raises:
        HwgenError: as `simulate_timing`, for chips with units.
    """
    from hwgen.report.trace_events import nest_trace, trace

    if isinstance(compilation, NestCompilation):
        return nest_trace(compilation)
    return trace(compilation)
