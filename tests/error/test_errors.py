"""Every malformed spec and workload gives exactly the error in the golden beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hwgen.errors import HwgenError
from hwgen.spec.load import load_hardware, load_workload
from tests.conftest import Golden

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CASES = sorted(p.name for p in HERE.iterdir() if p.suffix in (".yaml", ".json"))
VALID = ("spec_valid.yaml", "spec_valid_processor.yaml", "workload_valid.yaml")
WITHOUT_FILE = {"H001", "H002", "H003"}
"""Codes about files that cannot stand here; `tests/unit/spec/test_source.py` and
`tests/unit/cli/test_resolve.py` hold them."""


def _overrides(text: str) -> dict[str, int]:
    """What a case sets from outside, from its first line `# set: NAME=VALUE`."""
    return {n: int(v) for n, v in re.findall(r"(\w+)=(-?\d+)", text.split("\n", maxsplit=1)[0])}


def _load(name: str) -> None:
    text = Path(name).read_text(encoding="utf-8")
    if Path(name).name.startswith("spec"):
        load_hardware(name, _overrides(text))
    else:
        dtypes = re.match(r"# dtype: (\w+)=(\w+)", text)
        load_workload(name, _overrides(text), {dtypes[1]: dtypes[2]} if dtypes else None)


@pytest.mark.parametrize("name", [c for c in CASES if c not in VALID])
def test_malformed(name: str, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE)
    with pytest.raises(HwgenError) as caught:
        _load(name)
    golden(HERE / f"{name}.txt", str(caught.value))


@pytest.mark.parametrize("name", VALID)
def test_what_the_cases_were_made_from_is_valid(name: str) -> None:
    _load(str(HERE / name))


def test_every_code_has_a_case() -> None:
    # Those of programs, H7, are no errors of files.
    text = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "hwgen/spec").glob("*.py"))
    defined = {*re.findall(r'"(H[0-6]\d{2})"', text)}
    shown = {
        code
        for p in HERE.glob("*.txt")
        for code in re.findall(r"error\[(H\d{3})\]", p.read_text(encoding="utf-8"))
    }
    assert defined - WITHOUT_FILE == shown


def test_goldens_belong_to_cases() -> None:
    assert sorted(p.name for p in HERE.glob("*.txt")) == sorted(
        f"{c}.txt" for c in CASES if c not in VALID
    )
