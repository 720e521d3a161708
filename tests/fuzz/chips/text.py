"""Plain data as YAML text that a person can read: short parts are on one line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import cast

WIDTH = 96
Plain = Mapping[str, object]


def yaml_text(data: Plain) -> str:
    """The text of a file; `hwgen.spec.source.parse_document` reads the same data from it."""
    return "\n".join(_block(data, 0)) + "\n"


def _block(data: Plain, indent: int) -> list[str]:
    lines: list[str] = []
    for key, value in data.items():
        start = f"{' ' * indent}{_key(key)}:"
        short = f"{start} {_flow(value)}"
        if indent and len(short) <= WIDTH:
            lines.append(short)
        elif isinstance(value, dict) and value:
            lines += [start, *_block(cast(Plain, value), indent + 2)]
        elif isinstance(value, list) and value and len(short) > WIDTH:
            items = cast("Sequence[object]", value)
            lines += [start, *(f"{' ' * (indent + 2)}- {_flow(item)}" for item in items)]
        else:
            lines.append(short)
    return lines


def _flow(value: object) -> str:
    if isinstance(value, dict):
        pairs = cast(Plain, value).items()
        return "{" + ", ".join(f"{_key(k)}: {_flow(v)}" for k, v in pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flow(v) for v in cast("Sequence[object]", value)) + "]"
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z_]\w*|\d+\.\.\d+", value, re.ASCII):
        return value if value.lower() not in _TRAPS else json.dumps(value)
    return json.dumps(value, ensure_ascii=False)


def _key(key: str) -> str:
    return key if key.lower() not in _TRAPS else json.dumps(key)


_TRAPS = ("true", "false", "null", "yes", "no", "on", "off")
"""Words that some readers of YAML take for something else."""
