"""What every workload on every chip must come to: a kernel that passes all checks, or a refusal
that says what to change."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hypothesis import HealthCheck, settings

from hwgen.errors import HwgenError
from hwgen.passes.kernel import Kernel
from hwgen.polyhedral.search.choose import LIMITS
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload
from hwgen.verify.data import STYLES, draw_inputs
from hwgen.verify.examine import compile_ranked, examine
from hwgen.verify.natural.campaign import REFUSALS
from tests.fuzz.chips.examine import FILES
from tests.sampling import QUICK

T = TypeVar("T")

SETTINGS = settings(deadline=None, derandomize=True, suppress_health_check=(HealthCheck.too_slow,))
"""One draw may be slow: it compiles a kernel."""


def read(parse: Callable[[], T]) -> T | None:
    """What a file holds, None where it is refused properly."""
    try:
        return parse()
    except HwgenError as error:
        refused = error
    assert refused.code.startswith(FILES), refused
    return None


def judge(workload: Workload, hardware: HardwareSpec, seed: int = 0, rank: int = 0) -> str:
    """`""` where the kernel passes every check, else the code of the refusal.

    `rank`: of the schedule in the search's order.
    """
    try:
        compiled = compile_ranked(workload, hardware, rank, QUICK)
    except HwgenError as error:
        refused = error
    else:
        return _examined(compiled, workload, seed)
    assert refused.code in (*REFUSALS, *(LIMITS if rank else ())), refused
    known = refused.diagnostic
    assert known.found, refused
    assert known.repair or known.allowed, refused
    return refused.code


def _examined(compiled: Kernel, workload: Workload, seed: int) -> str:
    exact = any("float" in t.dtype for t in workload.tensors)
    examine(compiled, draw_inputs(workload, seed, "small" if exact else STYLES[seed % 3]))
    return ""
