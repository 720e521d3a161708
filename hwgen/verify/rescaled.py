"""Which sums of a kernel were rescaled, how often: what its results are rounded by besides."""

from __future__ import annotations

from hwgen.codegen.lower.program import Lowered


def rescaled_terms(lowering: Lowered) -> dict[str, int]:
    """By tensor of terms, the blocks after each of which sums of them may have been rescaled."""
    found: dict[str, int] = {}
    trees = [p.tree for p in lowering.parts] + [c.state for c in lowering.codes]
    for tree in trees:
        for stage in tree.stages:
            own = [r for r in stage.reads_in("init") if r.tensor == stage.tensor]
            if own and stage.op in ("max=", "min="):
                readers = [s for s in tree.stages if any(r.tensor == stage.tensor for r in s.reads)]
                found |= dict.fromkeys((s.tensor for s in readers), stage.iterators[0][1])
    return found
