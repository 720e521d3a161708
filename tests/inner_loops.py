"""The innermost loops of compiled kernels, as a disassembler lists them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

_LINE = re.compile(r"^ +([0-9a-f]+):\t(.*)$", re.MULTILINE)
_JUMP = re.compile(r"j\w+ +([0-9a-f]+)")
_STACK = re.compile(r"\(%r[sb]p")


def disassembled(file: Path) -> str:
    """The instructions of an object file or library."""
    command = ["objdump", "-d", "--no-show-raw-insn", str(file)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def inner_loops(listing: str, mnemonic: str, least: int) -> list[list[str]]:
    """The instructions of each loop without another jump inside and with so many of some name."""
    lines = [(int(a, 16), text) for a, text in _LINE.findall(listing)]
    at = {address: n for n, (address, _) in enumerate(lines)}
    found: list[list[str]] = []
    for n, (_, text) in enumerate(lines):
        jump = _JUMP.match(text)
        first = at.get(int(jump[1], 16), n) if jump else n
        body = [inside for _, inside in lines[first:n]]
        whole = not any(_JUMP.match(inside) for inside in body)
        if whole and sum(mnemonic in inside for inside in body) >= least:
            found.append(body)
    return found


def on_the_stack(body: list[str], registers: str = "") -> list[str]:
    """The instructions that use memory of the stack, or those of them with some registers: what
    did not fit there."""
    return [line for line in body if _STACK.search(line) and registers in line]
