"""Schedules found automatically, by the public primitives alone."""

from hwgen.autoschedule.report import Choice, SearchReport
from hwgen.autoschedule.search import DEFAULTS, Options, autoschedule

__all__ = ["DEFAULTS", "Choice", "Options", "SearchReport", "autoschedule"]
