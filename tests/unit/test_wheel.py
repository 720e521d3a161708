"""A wheel is the whole product: chips, workloads and schemas come with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

USE = """
import json, sys
from pathlib import Path
checkout, package = map(Path, sys.argv[1:])
sys.path = [p for p in sys.path if Path(p).resolve() != checkout]
import hwgen
from hwgen.cli import main
assert Path(hwgen.__file__).parent == package, hwgen.__file__
made = {
    "chip": str(hwgen.load_hardware("vta").location.file),
    "workload": hwgen.load_workload("gemm").name,
    "status": [
        main(["check", "vta"]),
        main(["list"]),
        main(["--help"]),
        main(["help", "H422"]),
        main(["help", "split"]),
        main(["generate", "--spec", "vta", "--workload", "gemm", "--set", "N=16", "--set", "K=16",
              "-o", "out"]),
    ],
    "outside": [
        m.__file__ for n, m in sys.modules.items()
        if n.split(".")[0] == "hwgen" and not Path(m.__file__).is_relative_to(package)
    ],
}
sys.stderr.write(json.dumps(made))
"""


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an installation of the wheel writes."""
    made = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(made)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = made.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(made / "site")
    return made / "site"


def test_chips_workloads_schemas_and_meanings_are_in_the_package(unpacked: Path) -> None:
    tops = sorted(p.name.partition("-")[0] for p in unpacked.iterdir())
    assert tops == ["hwgen", "hwgen"], "the package, and what pip keeps about it"
    wanted = {
        f"{folder}/{p.relative_to(ROOT / folder).as_posix()}": p.read_bytes()
        for folder, pattern in (
            ("hw_specs", "*.yaml"),
            ("workloads", "*.yaml"),
            ("workloads", "quantised/*"),
            ("workloads", "schedules/*"),
            ("docs", "*.schema.json"),
            ("docs", "errors/*.md"),
            ("docs", "schedule.md"),
        )
        for p in (ROOT / folder).glob(pattern)
    }
    shipped = unpacked / "hwgen" / "shipped"
    found = {
        p.relative_to(shipped).as_posix(): p.read_bytes() for p in shipped.rglob("*") if p.is_file()
    }
    assert found == wanted
    # The first line of a chip points editors at the schema, relative to its folder.
    assert (shipped / "hw_specs" / "../docs/hwgen.schema.json").is_file()


def test_every_source_file_is_in_it(unpacked: Path) -> None:
    def files(package: Path) -> set[str]:
        return {
            p.relative_to(package).as_posix()
            for p in package.rglob("*")
            if p.is_file() and "__pycache__" not in p.parts
        }

    ours = files(unpacked / "hwgen")
    assert {f for f in ours if not f.startswith("shipped/")} == files(ROOT / "hwgen")


def test_it_works_in_an_empty_folder(unpacked: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", USE, str(ROOT), str(unpacked / "hwgen")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(unpacked), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stderr)
    chip = unpacked / "hwgen" / "shipped" / "hw_specs" / "vta.yaml"
    assert made == {"chip": str(chip), "workload": "gemm", "status": [0] * 6, "outside": []}
    assert f"{chip}: valid\n" in done.stdout
    assert "hwgen generate --spec vta --workload gemm -o out" in done.stdout
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "gemm_vta_N16_K16.c", "gemm_vta_N16_K16.h", "gemm_vta_N16_K16_model.c",
    ]  # fmt: skip
