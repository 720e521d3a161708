"""What a compiled kernel has a host core do: modelled, and counted as it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hwgen.model.reference import random_inputs
from hwgen.passes.kernel import Kernel
from tests.host.retired import executed

ROOT = Path(__file__).resolve().parents[2]
LARGE = {"matmul"}
"""Whose arithmetic an emulator takes minutes for."""
WORKLOADS = tuple(
    path for path in sorted((ROOT / "workloads").rglob("*.yaml")) if path.stem not in LARGE
)


@dataclass(frozen=True, slots=True)
class Work:
    """Instructions of one kind of work in a call of a kernel."""

    name: str
    modelled: float
    retired: int


def counted(compiled: Kernel) -> Iterator[Work]:
    """Code of the core, and the packing of images; what there is none of is left out.

    Raises:
        HwgenError: a compiler's or the emulator's failure.
    """
    source = compiled.source
    code = sum(code.instructions for code in compiled.program.codes)
    packing = sum(compiled.packing.values())
    if not code and not packing:
        return
    done = executed(source.model, source, random_inputs(compiled.workload, 0))
    for name, modelled, pattern in (
        ("code", code, r"_code_\d"),
        ("packing", packing, "_(fill|unpack)_"),
    ):
        if modelled:
            yield Work(name, modelled, done.matching(pattern))
