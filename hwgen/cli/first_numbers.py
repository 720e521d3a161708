"""The numbers of a first chip that `init` writes, with what says where each comes from."""

from __future__ import annotations

from collections.abc import Mapping

ABOUT = (
    "# A first chip: every number is assumed. Put your own in, with the page of the manual that "
    "has it;\n# `hwgen check ${name}` after each change. All fields: `hwgen schema`, or complete "
    "them in an editor."
)

ASSUMED: Mapping[str, str] = {
    "about": ABOUT,
    "description": "A chip with a matrix-vector core, made by `hwgen init`. All numbers are "
    "assumed.",
    "parameters": '  T: {value: 16, range: 1..64, description: "lanes of the core: it multiplies T '
    'by a T x T tile"}',
    "o": "T",
    "i": "T",
    "memories": """\
  act: {kind: scratchpad, dtype: int8, entry: [T], size: 8 KiB}
  wgt: {kind: scratchpad, dtype: int8, entry: [T, T], size: 64 KiB}
  acc: {kind: scratchpad, dtype: int32, entry: [T], size: 32 KiB}""",
    "bus": """\
    beat_bytes: 16
    burst: {beats: 16, boundary_bytes: 4096}
    read: {latency_cycles: 50, in_flight_bursts: 4}
    write: {latency_cycles: 50, in_flight_bursts: 4}""",
    "last_act": "511",
    "last_wgt": "255",
    "last_acc": "511",
    "most_act": "512",
    "most_wgt": "256",
    "most_acc": "512",
}
"""Of a chip about which nothing is known. Texts of `hwgen/cli/templates/chip.yaml.in`."""
