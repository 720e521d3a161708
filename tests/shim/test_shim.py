"""The shim itself: every misuse it promises to notice is tried by a tiny C program and seen."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from functools import cache

import pytest

from hwgen.model.compiled import have_compiler
from tests.shim import harness

SOURCE = harness.SHIM / "cases.c"
CASES = re.findall(r"CASE\(([A-Z0-9_]+), (\w+)\)", SOURCE.read_text())

pytestmark = pytest.mark.skipif(not have_compiler(), reason="no C compiler")


@cache
def results() -> dict[str, list[list[str]]]:
    """Per case, what each interleaving printed: order, expected, found, wrong, message."""
    program = harness.scratch() / "cases"
    harness.compile_c(
        [
            *harness.STRICT,
            "-O2",
            f"-I{harness.SHIM}",
            SOURCE,
            *harness.shim_objects(),
            "-o",
            program,
        ]
    )  # fmt: skip
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    found: dict[str, list[list[str]]] = defaultdict(list)
    for line in done.stdout.splitlines():
        name, *rest = line.split(" ", 5)
        found[name].append(rest)
    return found


@pytest.mark.parametrize(("code", "name"), CASES, ids=[name for _, name in CASES])
def test_case(code: str, name: str) -> None:
    runs = results()[name]
    assert runs
    for _, expected, found, wrong, message in runs:
        assert (found, wrong) == (expected, "0"), message
        assert (code == "OK") == (message == "")


def test_every_error_has_a_case() -> None:
    header = (harness.SHIM / "vta" / "runtime" / "runtime.h").read_text()
    errors = set(re.findall(r"VTA_SHIM_(\w+) = \d+,? ", header)) | {"DEADLOCK", "LEFTOVER"}
    orders = {"COMPUTE_FIRST", "LOAD_FIRST", "STORE_FIRST", "ROUND_ROBIN", "RANDOM"}
    assert errors - orders <= {code for code, _ in CASES}
    assert len(errors - orders) >= 15


@pytest.mark.parametrize("configuration", [{"BATCH": 4}, {"BLOCK_IN": 8, "BLOCK_OUT": 32}])
def test_other_configurations_build(configuration: dict[str, int]) -> None:
    objects = harness.shim_objects(tuple(sorted(configuration.items())))
    assert all(path.stat().st_size for path in objects)
