"""Shipped chips with a processor beside their units: their own, or a plain one that is added."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware

SPECS = Path(__file__).parents[1] / "hw_specs"

HEAP = """
  heap:
    kind: workspace
    shared_by: kernel
    align: 64
    allocate: |
      {{ type }} *{{ name }} = ({{ type }} *)malloc({{ bytes }});
      if ({{ name }} == NULL) abort();
    free: "free({{ name }});"
"""

PROCESSOR = """
processor:
  default_memory: heap
  workers: 1
  operations_per_cycle: 1
  memory_bytes_per_cycle: 4
  line_bytes: 64
  caches: {L1: {size: 32 KiB, bytes_per_cycle: 8, shared_by: thread}}
  language: c
  suffix: .c

code:
"""


@cache
def beside(name: str) -> HardwareSpec:
    """A shipped chip with a processor."""
    shipped = load_hardware(SPECS / f"{name}.yaml")
    if shipped.processor is not None:
        return shipped
    text = (SPECS / f"{name}.yaml").read_text(encoding="utf-8")
    text = re.sub(r"^name: .*$", f"name: {name}_beside", text, count=1, flags=re.MULTILINE)
    text = text.replace("\nmemories:\n", f"\nmemories:{HEAP}", 1)
    text = text.replace("\ncode:\n", PROCESSOR, 1)
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.yaml"
        path.write_text(text, encoding="utf-8")
        return load_hardware(path, trust=True)
