"""What a program executes, and should not, or the other way round."""

from __future__ import annotations

from hwgen.errors import HwgenError


def refuted(message: str, found: str, allowed: str) -> HwgenError:
    """The error of a program that does not execute what its tree intends, or is not seen to."""
    return HwgenError(
        "H747",
        message,
        field="check instances",
        found=found,
        allowed=allowed,
        repair="report this command: the compiler is wrong",
    )


class UnprovedError(HwgenError):
    """The error of a form that the proof does not know."""


def unproved(what: str, allowed: str) -> UnprovedError:
    """The same of what is not known to be wrong."""
    return UnprovedError(
        "H747",
        "not proved to execute what its tree intends",
        field="check instances",
        found=what,
        allowed=allowed,
        repair="report this command: the compiler is wrong",
    )
