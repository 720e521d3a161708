"""What a draw must come to: a kernel that passes every check, or a refusal that says what to
change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from hwgen.errors import HwgenError
from hwgen.verify.natural.campaign import REFUSALS
from tests.fuzz.chips.draw import Draw
from tests.fuzz.tallies import crash_text

if TYPE_CHECKING:
    from hwgen.passes.kernel import Kernel
    from hwgen.spec.hardware import HardwareSpec
    from hwgen.spec.workload import Workload

FILES = ("H0", "H1", "H2")
"""Codes that reading a chip or a workload may end with."""
READ_AS_TEXT = 8
"""One in so many draws is read from its texts too: reading takes long."""
SURPLUS = "H766"
"""Synchronisation that orders nothing."""

Verdict = Literal["equal", "unread", "refused", "wrong"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One draw. `code`: of a refusal; `message`: what is wrong, its stage first; `ran_c`: the
    emitted C ran too; `surplus`: it waits more often than it must; `caught`: a planted defect was
    found; `features`: of the chip that the kernel uses, where it is right."""

    verdict: Verdict
    code: str = ""
    message: str = ""
    ran_c: bool = False
    surplus: bool = False
    caught: bool = False
    features: tuple[str, ...] = ()

    @property
    def signature(self) -> str:
        """The same for failures that look the same."""
        return self.message.partition("\n")[0][:60]


def check(draw: Draw) -> Outcome:
    """Read, compile and run a draw, and hold every property on it."""
    try:
        return _check(draw)
    except Exception as error:  # Any crash on a draw is a finding.
        return Outcome("wrong", message=f"crash: {crash_text(error)}")


def _check(draw: Draw) -> Outcome:
    from hwgen.spec.load import parse_hardware, parse_workload
    from hwgen.spec.source import parse_document
    from hwgen.verify.examine import compile_ranked
    from tests.fuzz.chips.used import features_used

    chip, text = draw.data
    if draw.seed % READ_AS_TEXT == 0:
        read = tuple(parse_document(t, "text").data for t in (draw.chip, draw.workload))
        if read != draw.data:
            return Outcome("wrong", message="reading: the texts are not the data")
    try:
        hardware = parse_hardware(chip, file="chip.yaml")
        workload = parse_workload(text, file="workload.yaml")
    except HwgenError as error:
        if error.code.startswith(FILES):
            return Outcome("unread", error.code)
        return Outcome("wrong", message=f"reading: {error}")
    try:
        compilation = compile_ranked(workload, hardware, draw.rank)
    except HwgenError as error:
        known = error.diagnostic
        if error.code not in REFUSALS:
            return Outcome("wrong", message=f"compiling: {error}")
        if not known.found or not (known.repair or known.allowed):
            return Outcome("wrong", message=f"refused without a reason or a repair: {error}")
        return Outcome("refused", error.code)
    outcome = _run(draw, compilation, workload, hardware)
    if outcome.verdict != "equal":
        return outcome
    return replace(outcome, features=features_used(compilation))


def _run(draw: Draw, compilation: Kernel, workload: Workload, hardware: HardwareSpec) -> Outcome:
    from hwgen.model.c_compiler import build_in_turn, have_compiler
    from hwgen.verify.data import draw_inputs
    from hwgen.verify.examine import examine
    from tests.fuzz.edits import catch
    from tests.fuzz.mutations_configuration import configuration_mutations
    from tests.fuzz.mutations_lanes import lane_mutations
    from tests.fuzz.mutations_synchronisation import synchronisation_mutations
    from tests.redundancy import check_minimal

    inputs = draw_inputs(workload, draw.seed, draw.style)
    use_c = draw.use_c and have_compiler()
    try:
        examine(compilation, inputs)
        if use_c:
            examine(compilation, inputs, "c", build_in_turn(draw.seed))
    except HwgenError as error:
        return Outcome("wrong", message=f"running: {error}")
    try:
        check_minimal(compilation.program, hardware)
    except HwgenError as error:
        # What several phases keep on the chip is ordered as a whole, not tile by tile.
        if error.code != SURPLUS or not compilation.account.phases:
            return Outcome("wrong", message=f"running: {error}")
        return Outcome("equal", ran_c=use_c, surplus=True)
    mutations = (
        *synchronisation_mutations(hardware),
        *configuration_mutations(hardware),
        *lane_mutations(hardware),
    )
    if draw.mutant is None or not mutations:
        return Outcome("equal", ran_c=use_c)
    mutation = mutations[draw.mutant % len(mutations)]
    mutant = mutation.mutate(compilation.program, draw.seed)
    if mutant is None:
        return Outcome("equal", ran_c=use_c)
    found = catch(mutant, hardware, workload, inputs)
    if found not in mutation.caught_by:
        name = found or "no check"
        message = f"planted defect: {mutation.name} is found by {name}, not by "
        message += " or ".join(mutation.caught_by)
        return Outcome("wrong", message=message)
    return Outcome("equal", ran_c=use_c, caught=True)
