"""Every command of the page about firmware, run as it stands there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hwgen.model.compiled import have_compiler

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


def script() -> str:
    """The page's commands, and its files where it names them."""
    text = PAGE.read_text(encoding="utf-8")
    lines = ["set -e"]
    for found in re.finditer(r"```(sh|c)\n(.*?)```", text, re.DOTALL):
        if found[1] == "sh":
            lines.append(found[2])
            continue
        named = re.findall(r"file `(\w+\.c)`", text[: found.start()].rsplit("\n\n", 2)[1])
        if named:
            lines.append(f"cat > {named[0]} <<'END'\n{found[2]}END")
    return "\n".join(lines)


def test_the_commands_lead_to_a_linked_image(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "python").symlink_to(sys.executable)
    (tools / "hwgen").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hwgen "$@"\n')
    (tools / "hwgen").chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(PAGE.parents[1])}
    text = script()
    assert text.count("<<'END'") == 2
    done = subprocess.run(
        ["bash", "-c", text], cwd=tmp_path, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    written = {p.name.replace(KERNEL, "NAME") for p in (tmp_path / "firmware").iterdir()}
    rows = re.findall(r"^\| (`.*?`) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(.*?)/?`", row)}
    assert {"NAME.c", "NAME_weights.c", "NAME_pack.c", "stub"} <= named
    assert written - MADE <= named
    symbols = done.stdout.rsplit("firmware.elf", 1)[1]
    assert "npu_matmul" in symbols
    assert not re.search(r" U |malloc|printf", symbols)
