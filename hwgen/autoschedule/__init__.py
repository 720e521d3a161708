"""Schedules found automatically, by the public primitives alone."""

from hwgen.autoschedule.report import Choice, SearchReport
from hwgen.autoschedule.search import Options, autoschedule

__all__ = ["Choice", "Options", "SearchReport", "autoschedule"]
