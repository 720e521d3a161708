"""Fill in the README: `python benchmarks/readme.py`, or only its excerpts with `--excerpts`."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping

from run import ROOT, SECTIONS, compiled

from hwgen.pipeline import Compilation, compile_kernel
from hwgen.report.text import describe, measure
from hwgen.scripting import script_of
from hwgen.spec.load import load_hardware, load_workload

README = ROOT / "README.md"
GEMM = {"M": 1, "N": 256, "K": 256}


def kernel_text(source: str) -> str:
    """The function that issues the kernel's calls."""
    found = re.search(r"^static void \w+_run\(.*?^}$", source, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[0]


def array_kernel() -> Compilation:
    """A small product with a bias on an array behind a host."""
    workload = load_workload(ROOT / "workloads" / "gemm_scaled.yaml", {"M": 16, "N": 64, "K": 64})
    return compile_kernel(workload, load_hardware(ROOT / "hw_specs" / "gemmini.yaml"))


def excerpts() -> dict[str, str]:
    """What stands between the README's markers and does not depend on the machine."""
    c = compiled("gemm", GEMM)
    array = kernel_text(array_kernel().source.c)
    return {
        "array": f"```c\n{array}\n```",
        "report": f"```\n{describe(measure(c))}\n```",
        "kernel": f"```c\n{kernel_text(c.source.c)}\n```",
        "script": f"```text\n{script_of(c).rstrip()}\n```",
    }


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
    made = excerpts()
    if "--excerpts" not in sys.argv[1:]:
        made["figures"] = figures()
    README.write_text(fill(old, made), encoding="utf-8")
    sys.stdout.write(f"wrote {README}\n")
