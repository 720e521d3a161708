"""What `generate --stage` can show, in the pipeline's order."""

from __future__ import annotations

STAGES = (
    "load", "scop", "dependences", "match", "schedule", "script", "layout", "allocate", "lower",
    "cost", "emit", "model", "simulate",
)  # fmt: skip
"""Of a chip with units."""

NEST_STAGES = ("load", "state", "schedule", "script", "lower", "emit")
"""Of a chip whose kernels are loops on a processor."""
