"""Every command of the page about firmware, run as it stands there."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from hwgen.model.compiled import have_compiler
from tests.pages import Page

KERNEL = "linear_relu_npu_shared_buffer"
MADE = {
    "NAME.o", "NAME_weights.o", "main.o", "memory.o", "npu.o", "memory.c", "npu.c", "host",
    "libkernels.a", "firmware.elf",
}  # fmt: skip
"""What the page's own commands make beside what `generate` writes."""
PAGE = Path(__file__).parents[2] / "docs" / "firmware.md"

pytestmark = pytest.mark.skipif(
    not (have_compiler() and shutil.which("make") and shutil.which("cc")), reason="no C compiler"
)


def test_the_commands_lead_to_a_linked_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.chdir(tmp_path)
    page = Page(PAGE, monkeypatch, capsys, outputs=("text",))
    page.run()
    assert {"memory.c", "npu.c"} <= {p.name for p in (tmp_path / "firmware").iterdir()}
    written = {p.name.replace(KERNEL, "NAME") for p in (tmp_path / "firmware").iterdir()}
    rows = re.findall(r"^\| (`.*?`) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(.*?)/?`", row)}
    assert {"NAME.c", "NAME_weights.c", "NAME_pack.c", "stub"} <= named
    assert written - MADE <= named
    symbols = page.printed.rsplit("firmware.elf", 1)[1]
    assert "npu_matmul" in symbols
    assert not re.search(r" U |malloc|printf", symbols)
