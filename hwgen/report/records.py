"""Kernels, explanations and campaigns as plain data, for `--json` (docs/cli.md has the keys)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from hwgen.errors import Diagnostic
from hwgen.report.refused import Refusal

if TYPE_CHECKING:
    from hwgen.passes.kernel import Kernel
    from hwgen.polyhedral.match.explain import Explanation
    from hwgen.polyhedral.scop import Scop
    from hwgen.report.text import Measured
    from hwgen.spec.hardware import HardwareSpec
    from hwgen.verify.campaign import CampaignReport
    from hwgen.verify.natural.campaign import NaturalReport, Outcome

Json = str | int | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]
Record = dict[str, Json]


def error_record(diagnostic: Diagnostic) -> Record:
    """An error; what is unknown of it is null or empty."""
    where = diagnostic.location
    return {
        "code": diagnostic.code,
        "message": diagnostic.message,
        "file": where.file if where else None,
        "line": (where.line or None) if where else None,
        "column": (where.column or None) if where else None,
        "field": diagnostic.field,
        "found": diagnostic.found,
        "allowed": diagnostic.allowed,
        "repair": diagnostic.repair,
    }


def chip_record(hardware: HardwareSpec) -> Record:
    """What a chip has, by name."""
    return {
        "chip": hardware.name,
        "parameters": dict(hardware.parameters),
        "memories": [m.name for m in hardware.memories],
        "units": [u.name for u in hardware.units],
        "intrinsics": [i.name for i in hardware.intrinsics],
        "processor": hardware.processor is not None,
    }


def kernel_record(measured: Measured) -> Record:
    """A kernel: cycles and bytes; of a processor its blocks and script besides."""
    c, timing, bound = measured.compilation, measured.timing, measured.bound
    return {
        "workload": c.workload.name,
        "chip": c.hardware.name,
        "sizes": dict(c.workload.sizes),
        "parameters": dict(c.hardware.parameters),
        "function": c.source.function,
        "cycles": timing.cycles,
        **_speed(c),
        "exact": timing.exact,
        "lower_bound_cycles": bound.cycles,
        "bound_by": bound.resource,
        "off_chip_bytes": measured.off_chip_bytes,
        "energy_picojoules": c.energy if c.hardware.has_energy else None,
        "main_intrinsic": c.main_intrinsic,
        "traffic": [
            {
                "tensor": t.tensor,
                "role": t.role,
                "loaded_bytes": t.loaded,
                "stored_bytes": t.stored,
                "tensor_bytes": t.size,
            }
            for t in measured.traffic
        ],
        "units": [
            {
                "unit": u.unit,
                "busy_cycles": u.busy,
                "waits_for_units_cycles": u.tokens,
                "bus_cycles": u.bus,
                "fetch_cycles": u.fetch,
                "queue_cycles": u.queue,
                "bank_cycles": u.banks,
            }
            for u in timing.units
        ],
        "buffers": [
            {
                "buffer": b.name,
                "memory": b.memory,
                "tensor": b.tensor,
                "first_entry": b.base,
                "entries": b.entries,
                "slots": b.slots,
            }
            for b in c.program.buffers
        ],
        "notes": list(c.notes),
        "search_cut_short": list(c.ended_by),
        **(_blocks(c) if c.nest else {}),
    }


def _speed(c: Kernel) -> Record:
    """Seconds and operations, where the chip's file has a clock."""
    if not c.seconds:
        return {}
    return {
        "clock_hertz": c.hardware.clock_hz,
        "seconds": c.seconds,
        "operations": c.operations,
        "operations_per_second": c.operations / c.seconds,
    }


def _blocks(c: Kernel) -> Record:
    """What is told of a kernel of a processor besides: its blocks and its script."""
    return {
        "blocks": [
            {
                "block": b.block,
                "cycles": round(b.cycles),
                "arithmetic_cycles": round(b.compute_cycles),
                "memory_bytes": round(b.memory_bytes),
            }
            for b in c.cost.blocks
        ],
        "script": c.script.splitlines(),
    }


def refusal_records(refused: Iterable[Refusal]) -> list[Record]:
    """Workloads without a kernel, with who prevents it."""
    return [
        {
            "workload": r.name,
            "verdict": r.verdict,
            "because": r.because,
            "error": error_record(r.error.diagnostic),
        }
        for r in refused
    ]


def statement_records(scop: Scop, found: Sequence[Explanation]) -> list[Record]:
    """Statements, each against every intrinsic."""
    return [
        {
            "statement": statement.name,
            "text": str(statement),
            "intrinsics": [
                {
                    "intrinsic": e.intrinsic,
                    "matches": bool(e.binding),
                    "binding": e.binding,
                    "reason": e.reason,
                    "repair": e.repair,
                }
                for e in found
                if e.statement == statement.name
            ],
        }
        for statement in scop.statements
    ]


def campaign_record(report: CampaignReport) -> Record:
    """A campaign of random sizes, data and schedules."""
    return {
        "seed": report.seed,
        "results": [
            {
                "workload": r.workload,
                "runnable": r.runnable,
                "passed": r.passed,
                "refused": r.refused,
                "ran_c": r.c_runs,
                "nothing_compared": r.vacuous,
                "reason": r.reason,
                "failure": None
                if r.failure is None
                else {"message": r.failure.message, "reproduce": r.failure.command},
            }
            for r in report.results
        ],
    }


def natural_record(report: NaturalReport) -> Record:
    """A campaign of natural workloads."""
    return {
        "seed": report.seed,
        "chips": [
            {
                "chip": c.chip.stem,
                "drawn": c.drawn.total(),
                "right": c.ran,
                "ran_c": c.c_runs,
                "compared_in_part": c.unbounded - c.vacuous,
                "nothing_compared": c.vacuous,
                "families": {
                    family: {"drawn": c.drawn[family], "right": c.families[family]}
                    for family in sorted(c.drawn)
                },
                "refused": dict(sorted(c.codes.items())),
                "most_natural_refused": [_outcome(o) for o in c.most_natural],
                "wrong": [_outcome(o) for o in c.wrong],
            }
            for c in report.chips
        ],
    }


def _outcome(outcome: Outcome) -> Record:
    """A natural workload that was refused or wrong, as a workload's file has it."""
    drawn = outcome.workload
    return {
        "code": outcome.code,
        "message": outcome.message,
        "family": drawn.family,
        "unusual": list(drawn.unusual),
        "workload": cast("Json", drawn.data),
    }
