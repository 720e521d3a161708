"""How far rounding may bring the floats of a network from what its statements mean."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hwgen.model.numeric import Array
from hwgen.model.reference import run_reference
from hwgen.network.runner import Arrays, LayerByLayer
from hwgen.network.steps import Plan, Step
from hwgen.verify.rounding import Bounded, Floats, Leeway, rounding_bounds


def layer_bound(
    step: Step, given: Arrays, errors: Mapping[str, Floats] | None = None
) -> Bounded | None:
    """The output of a layer for inputs by their names in its computation, and how far from it
    rounding may bring a kernel; None where floats do not come into it.

    `errors`: how far inputs may be off already.
    """
    leeway = Leeway(inexact={**step.layer.inexact, **(errors or {})})
    given = {**given, **step.layer.constants}
    return rounding_bounds(step.kernel.workload, given, leeway).get(step.layer.output[0])


def bounded_outputs(plan: Plan, inputs: Arrays) -> tuple[dict[str, Array], dict[str, Floats]]:
    """The network's outputs by name as its statements give them without any chip, and how far those
    of kernels may be from them, where floats come into them."""
    errors: dict[str, Floats] = {}
    found = LayerByLayer(plan, lambda step, given: _bounded(plan, step, given, errors)).run(inputs)
    held = {n: errors[plan.buffer[n]] for n in plan.graph.outputs if plan.buffer[n] in errors}
    return found, {n: np.reshape(e, found[n].shape) for n, e in held.items()}


def _bounded(plan: Plan, step: Step, given: Arrays, errors: dict[str, Floats]) -> Arrays:
    """A layer's output, whose errors are added to those that are known, by buffer."""
    own = {
        name: np.reshape(errors[plan.buffer[of]], given[name].shape)
        for name, of in step.layer.inputs
        if plan.buffer[of] in errors
    }
    made = run_reference(step.kernel.workload, given)
    name, tensor = step.layer.output
    bound = layer_bound(step, given, own)
    if bound is None:
        errors.pop(plan.buffer[tensor], None)
    else:
        errors[plan.buffer[tensor]] = bound.error + np.abs(
            made[name].astype(np.float64) - bound.value
        )
    return made
