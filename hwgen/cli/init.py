"""`init`: a first chip, its workload and a stub of its header, to be changed into one's own."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import typer

from hwgen.cli.commands_files import Sync
from hwgen.cli.first_numbers import ASSUMED
from hwgen.errors import HwgenError, Location
from hwgen.report.output import write_files
from hwgen.spec.find import find_spec
from hwgen.spec.load import (
    hardware_json_schema,
    load_hardware,
    parse_hardware,
    parse_workload,
    workload_json_schema,
)
from hwgen.spec.source import parse_document, read_document

if TYPE_CHECKING:
    from hwgen.spec.hardware import HardwareSpec

_TEMPLATES = Path(__file__).parent / "templates"
SCHEMA = "hwgen.schema.json"
WORKLOAD_SCHEMA = "hwgen-workload.schema.json"
WORKLOAD = "gemm.yaml"
_TYPES = (
    ("int8", "int32"),
    ("float32", "float32"),
    ("float16", "float32"),
    ("bfloat16", "float32"),
)
"""Of a GEMM's factors and its sums."""
_UNITS = (("core",), ("mover", "core"), ("load", "core", "store"))
"""Names of the units, for one to three of them."""


_SYNCHRONIZATION = {
    Sync.NONE: "  kind: none # One unit runs everything in order.",
    Sync.TOKENS: """\
  kind: tokens # Counting queues between pairs of units.
  edges: $edges
  push: "${name}_push({{ source.id }}, {{ target.id }});"
  pop: "${name}_pop({{ source.id }}, {{ target.id }});\"""",
    Sync.EVENTS: """\
  kind: events # Numbered flags that one unit sets and another awaits.
  edges: $edges
  flags: 8
  signal: "${name}_signal({{ source.id }}, {{ target.id }}, {{ event }});"
  wait: "${name}_wait({{ source.id }}, {{ target.id }}, {{ event }});\"""",
    Sync.BARRIER: """\
  kind: barrier # A call that waits until a unit has done all that was issued to it.
  emit: "${name}_wait({{ unit.id }});"
  cycles: 10""",
    Sync.SCOREBOARD: """\
  kind: scoreboard # Hardware that delays calls which touch the same entries on chip.
  cycles: 2
  fence: "${name}_fence();"
  fence_cycles: 20""",
}
_PROTOTYPES = {
    Sync.NONE: "",
    Sync.TOKENS: """
/* Tokens from one unit to another. */
void ${name}_push(uint32_t source, uint32_t target);
void ${name}_pop(uint32_t source, uint32_t target);
""",
    Sync.EVENTS: """
/* Flags from one unit to another. */
void ${name}_signal(uint32_t source, uint32_t target, uint32_t flag);
void ${name}_wait(uint32_t source, uint32_t target, uint32_t flag);
""",
    Sync.BARRIER: """
void ${name}_wait(uint32_t unit); /* until it has done all that was issued to it */
""",
    Sync.SCOREBOARD: """
void ${name}_fence(void); /* waits until all units are done */
""",
}


def new_chip(name: str, units: int, sync: Sync, given: Mapping[str, str] = ASSUMED) -> None:
    """Write NAME.yaml, NAME.h, gemm.yaml and the schema that editors read. `given`: its numbers.

    Raises:
        HwgenError: H040 where there is such a file, H009 where nothing can be written.
    """
    names = _UNITS[units - 1]
    edges = [f"[{a}, {b}]" for u in names if u != "core" for a, b in ((u, "core"), ("core", u))]
    values = {
        **given,
        "about": given["about"].replace("${name}", name),
        "name": name,
        "NAME": name.upper(),
        "units": "\n".join(f"  {u}: {{identifiers: {{id: {i}}}}}" for i, u in enumerate(names)),
        "load": names[0],
        "core": "core",
        "store": names[-1] if units == len(_UNITS) else names[0],
        "edges": f"[{', '.join(edges)}]",
    }

    def fill(file: str, synchronization: str) -> str:
        part = Template(synchronization).substitute(values)
        return Template(_template(file)).substitute(values, synchronization=part)

    chip = fill("chip.yaml.in", _SYNCHRONIZATION[sync])
    header = {f"{name}.h": fill("chip.h.in", _PROTOTYPES[sync])}
    _write(name, f"{name}.yaml", chip, header, _gemm(*_TYPES[0]))


def like(name: str, model: str) -> None:
    """Write NAME.yaml, another chip's file under a new name, gemm.yaml in types that it multiplies,
    and the schemas; no workload where it has no GEMM.

    Raises:
        HwgenError: as `new_chip`, and whatever reading the other file raises.
    """
    path = find_spec(model)
    workload = _gemm_of(load_hardware(path))
    _write(name, f"{name}{path.suffix}", _renamed(path, name), {}, workload)


def _gemm(factor: str, total: str) -> str:
    """The text of a GEMM of factors and a result of one type, and sums of another."""
    return Template(_template("gemm.yaml.in")).substitute(factor=factor, total=total)


def _gemm_of(hardware: HardwareSpec) -> str:
    """A GEMM in the first types that the chip's calls multiply, else its processor; or nothing."""
    from hwgen.polyhedral import isl
    from hwgen.polyhedral.match.select import select
    from hwgen.polyhedral.scop import build_scop

    texts = [_gemm(*types) for types in _TYPES]
    for text in texts if hardware.units else []:
        data = parse_document(text, WORKLOAD).data
        assert isinstance(data, dict)
        with isl.bounded(), contextlib.suppress(HwgenError):
            select(build_scop(parse_workload(data)), hardware)
            return text
    return texts[0] if hardware.processor is not None else ""


def _renamed(path: Path, name: str) -> str:
    document = read_document(path)
    assert isinstance(document.data, dict)
    place, old = document.locate(("name",)), str(document.data["name"])
    lines = path.read_text(encoding="utf-8-sig").splitlines(keepends=True)
    line = lines[place.line - 1]
    before, after = line[: place.column - 1], line[place.column - 1 :]
    lines[place.line - 1] = before + after.replace(old, name, 1)
    return re.sub(r"\A(# yaml-language-server: \$schema=)\S+", rf"\g<1>{SCHEMA}", "".join(lines))


def _template(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _write(name: str, file: str, chip: str, others: Mapping[str, str], workload: str) -> None:
    """Write a chip and what goes with it here; only the schema may be there already, and a
    workload, which stays."""
    data = parse_document(chip, file, json=file.endswith(".json")).data
    assert isinstance(data, dict)
    parse_hardware(data, file=file)
    files = {file: chip, **others}
    for new in files:
        if os.path.lexists(new):
            raise HwgenError(
                "H040",
                "a file that would be written is there already",
                location=Location(new),
                repair=f"another name than {name}, or another folder",
            )
    files[SCHEMA] = json.dumps(hardware_json_schema(), indent=2) + "\n"
    if workload and not os.path.lexists(WORKLOAD):
        files[WORKLOAD] = workload
        files[WORKLOAD_SCHEMA] = json.dumps(workload_json_schema(), indent=2) + "\n"
    written = write_files(Path(), files)
    typer.echo(f"wrote {', '.join(sorted(map(str, written)))}")
    typer.echo(f"next: hwgen check {name}")
    typer.echo(f"      hwgen generate --spec {name}{' --workload gemm' if workload else ''} -o out")
    if others:
        typer.echo("      cc -c out/*.c")
