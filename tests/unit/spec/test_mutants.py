"""What `check` passes, `generate` can use; `mutants.py` looks at many more."""

from __future__ import annotations

from copy import deepcopy

from tests.unit.spec.mutants import chip, mutant, outcome, product

FLOATS = product("float32")


def test_valid_mutants_of_units_compile_or_are_refused() -> None:
    spec = chip("tests/specs/one_unit.yaml")
    found = [outcome(mutant(spec, number), FLOATS) for number in range(11)]
    assert [f for f in found if " " in f] == []
    assert found.count("unread") < len(found)


def test_valid_mutants_of_a_processor_compile_or_are_refused() -> None:
    spec = chip("tests/specs/cpu_gemv.yaml")
    found = [outcome(mutant(spec, number), FLOATS) for number in range(6)]
    assert [f for f in found if " " in f] == []
    assert "equal" in found


def test_a_processor_without_caches() -> None:
    spec = deepcopy(chip("tests/specs/cpu_gemv.yaml"))
    del spec["processor"]["caches"]
    assert outcome(spec, FLOATS) == "equal"


def test_threads_without_memory_of_their_own() -> None:
    spec = deepcopy(chip("hw_specs/cuda_generic.yaml"))
    del spec["memories"]["local"]
    assert outcome(spec, FLOATS) == "equal"


def test_a_launch_of_threads_that_no_loop_makes() -> None:
    spec = deepcopy(chip("hw_specs/cuda_generic.yaml"))
    del spec["processor"]["loops"]["threadIdx.z"]
    assert outcome(spec, FLOATS) == "unread"
