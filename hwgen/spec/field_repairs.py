"""The nearest change for a field whose form is wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from hwgen.spec.source import Data
from hwgen.spec.suggest import suggestion

MAX_SHOWN = 120
MAX_NAME = 64


def of_unknown_field(name: str, known: Sequence[str], beside: Mapping[str, Data]) -> str:
    """What to write for a field that there is not, beside others."""
    key, colon, value = name.partition(":")
    if colon and key in known:
        return f"write {key}: {value.strip()}, with a space after the colon"
    if re.fullmatch(r"\d{3}", name) and beside.get(name, 0) is None:
        keys = list(beside)
        before = keys[keys.index(name) - 1]
        return f"write {before}: {beside[before]}{name}: a comma ends a value, also of a number"
    if "identifiers" in known and isinstance(beside.get(name), int):
        return f"write identifiers: {{{name}: {beside[name]}}}"
    if "do" in known and "=" in name:
        choice = "write a choice as select(condition, a, b)"
        return choice if " ? " in name else f"put the statement in quotes: {name[:MAX_SHOWN]!r}"
    return suggestion(name, known) or "remove it, or write one of the fields that there are"


def of_name(name: str) -> str:
    """A name near to a text that cannot be one."""
    plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")[:MAX_NAME]
    plain = re.sub(r"^[\d_]+", "", plain)
    return f"did you mean {plain!r}?" if plain else ""


def of_wrong_type(
    value: Data, parent: Data, around: Mapping[str, Data], field: str, allowed: str
) -> str:
    """What to write for a value of another kind, as what is wanted; nothing where it is not near.

    `parent`: what the value is in; `around`: the fields around it.
    """
    if isinstance(value, list) and allowed.startswith("a mapping"):
        return _as_mapping(value, around, field)
    if allowed == "a list" and isinstance(value, str):
        if re.match(r"\w+\[.*\]\s*(\+|max|min)?=", value):
            first = value.partition("=")[0]
            return f"begin each entry of `{field}` with a dash: - {first[:MAX_SHOWN]}= ..."
        if isinstance(parent, list) and all(isinstance(v, str) for v in parent):
            return f"write a list of lists: [[{', '.join(map(str, parent))}]]"
        if re.fullmatch(r"[\w*/+ -]+", value):
            return f"write [{value}]"
    if isinstance(value, float) and allowed.startswith("an integer"):
        return f"write {round(value)}, or another integer"
    return ""


def _as_mapping(value: list[Data], around: Mapping[str, Data], field: str) -> str:
    named = [v for v in value if isinstance(v, dict)]
    if named and len(named) == len(value):
        first = next(iter(named[0]), "")
        return f"write the entries without dashes: each is NAME: ..., as `{first}: ...`"
    plain = [v for v in value if isinstance(v, str | int)]
    if not plain or len(plain) != len(value):
        return ""
    operands = around.get("operands")
    if field == "strides" and isinstance(operands, dict) and len(operands) == len(plain):
        each = ", ".join(f"{name}: {v}" for name, v in zip(operands, plain, strict=True))
        return f"name the operands: write strides: {{{each}}}"
    if all(isinstance(v, str) and v.isidentifier() for v in plain):
        each = ", ".join(f"{v}: ..." for v in plain)
        return f"give each a number: {field}: {{{each}}}"
    return ""
