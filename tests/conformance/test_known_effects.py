"""The known effects of the scheduling primitives: the loops, the emitted text, and its results."""

from __future__ import annotations

import re

import pytest

from tests.conformance.known_effects import CASES, execute
from tests.sampling import tiered
from tests.unit.tree.toy import start

KNOWN = (
    "cache_read", "cache_write", "set_scope", "storage_align", "compute_at", "compute_inline",
    "compute_root", "fuse", "split", "reorder", "tile", "unroll", "vectorize", "bind", "parallel",
    "pragma", "prefetch", "tensorize", "rfactor", "set_store_predicate", "create_group",
)  # fmt: skip


def test_all_are_covered() -> None:
    used = {name for c in CASES.values() for name in re.findall(r"s\.(\w+)\(", c.script)}
    assert len(KNOWN) == 21
    assert set(KNOWN) <= used


@pytest.mark.parametrize("name", tiered([*CASES], [n for n in CASES if n != "tile"]))
def test_known_effect(name: str) -> None:
    case = CASES[name]
    s = start(case.workload, case.chip).replay(case.script)
    shown = str(s)
    assert shown[shown.index("\nfor ") :].strip() == case.loops.strip()
    source, equal = execute(s)
    for text in case.emitted:
        assert text in source.c
    assert equal
