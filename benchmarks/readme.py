"""Fill in the README: `python benchmarks/readme.py`, or only its excerpts with `--excerpts`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from run import ROOT, SECTIONS

README = ROOT / "README.md"
EXCERPTS = {"report": "", "kernel": "c", "script": "text", "array": "c"}
"""Parts that do not depend on the machine, and the language of each."""


def kernel_text(source: str) -> str:
    """The function that issues the kernel's calls."""
    found = re.search(r"^static void \w+_run\(.*?^}$", source, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[0]


def excerpt(text: str, part: str) -> str:
    """What the last command before a part of the README gives."""
    before = text.split(f"<!-- {part}:begin -->", maxsplit=1)[0]
    command = re.findall(r"\bhwgen (generate .*?)[`\n]", before)[-1]
    with TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "hwgen", *command.split()]
        here = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            words, cwd=folder, env=here, capture_output=True, text=True, check=True
        )
        if part == "report":
            return done.stdout.split("\n\nwrote ")[0]
        if part == "kernel":
            file = re.findall(r"writes `(out/\w+\.c)`", text)[0]
            return kernel_text((Path(folder) / file).read_text(encoding="utf-8"))
    return kernel_text(done.stdout) if part == "array" else done.stdout.rstrip()


def excerpts(text: str) -> dict[str, str]:
    """What stands between the README's markers, from the commands that stand before them."""
    return {p: f"```{language}\n{excerpt(text, p)}\n```" for p, language in EXCERPTS.items()}


def figures() -> str:
    """Every section of the benchmarks."""
    parts = [f"{section.__doc__}\n\n```\n{section()}\n```" for section in SECTIONS]
    return "\n\n".join(parts)


def fill(text: str, parts: Mapping[str, str]) -> str:
    """The text with each part between its markers."""
    for name, part in parts.items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        head, rest = text.split(begin)
        text = f"{head}{begin}\n{part}\n{end}{rest.split(end)[1]}"
    return text


if __name__ == "__main__":
    old = README.read_text(encoding="utf-8")
    made = excerpts(old)
    if "--excerpts" not in sys.argv[1:]:
        made["figures"] = figures()
    README.write_text(fill(old, made), encoding="utf-8")
    sys.stdout.write(f"wrote {README}\n")
