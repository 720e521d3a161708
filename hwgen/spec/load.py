"""Files (or plain Python data) to validated, resolved chips and workloads: the public entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path

from hwgen.errors import HwgenError
from hwgen.spec.declared import DeclaredIntrinsic, with_intrinsics
from hwgen.spec.fields import validate
from hwgen.spec.find import SIGNS, SPEC_FOLDER, Kind, find_spec, find_workload, shipped_in
from hwgen.spec.findings import Findings
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.source import Document, Text, from_python, parse_document, read_text
from hwgen.spec.workload import Workload


def load_hardware(
    path: Path | str,
    parameters: Mapping[str, int] | None = None,
    intrinsics: Sequence[DeclaredIntrinsic] = (),
    *,
    trust: bool = False,
) -> HardwareSpec:
    """Read a chip from a YAML or JSON file; `parameters` replace the file's defaults, `intrinsics`
    are added to the file's. `trust`: C with text of its templates may run on this machine, as that
    of chips that come with hwgen may (SECURITY.md).

    A text may be a bare name too: of a file here or in hw_specs/, or of a chip that comes with
    hwgen.

    Raises:
        HwgenError: H00x to H03x and H1xx, with file, line and field.
    """
    found = find_spec(path) if isinstance(path, str) else path
    text, given = read_text(found), parameters or {}
    if not intrinsics and all(type(v) is int for v in given.values()):
        return read_hardware(text, tuple(sorted(given.items())), trust=trust)
    document = with_intrinsics(parse_document(*text), intrinsics)
    return _hardware(document, given, trust or _is_shipped(text[0]))


@lru_cache(maxsize=64)
def read_hardware(
    text: Text, parameters: tuple[tuple[str, int], ...], *, trust: bool
) -> HardwareSpec:
    """A chip from its file's text, as `load_hardware`; nobody changes it: campaigns and notebooks
    load the same one again and again."""
    return _hardware(parse_document(*text), dict(parameters), trust or _is_shipped(text[0]))


def read_workload(text: Text, sizes: Mapping[str, int], dtypes: Mapping[str, str]) -> Workload:
    """A workload from its file's text, as `load_workload`."""
    return _workload(parse_document(*text), sizes, dtypes)


def _is_shipped(text: str) -> bool:
    """True if a chip that comes with hwgen has this text, wherever it was read."""
    return any(read_text(path)[0] == text for path in shipped_in(SPEC_FOLDER))


def parse_hardware(
    data: Mapping[str, object],
    parameters: Mapping[str, int] | None = None,
    file: str = "<hardware>",
    *,
    trust: bool = False,
) -> HardwareSpec:
    """A chip from plain Python data, as `load_hardware` reads it from a file."""
    return _hardware(from_python(data, file), parameters or {}, trust)


def load_workload(
    path: Path | str,
    sizes: Mapping[str, int] | None = None,
    dtypes: Mapping[str, str] | None = None,
) -> Workload:
    """Read a workload from a YAML or JSON file; `sizes` replace the file's, and `dtypes` its data
    types, by the names that it gives them or by tensors.

    A text may be a bare name too: of a file here or in workloads/, or of a workload that comes
    with hwgen.

    Raises:
        HwgenError: H00x to H03x and H2xx, with file, line and field.
    """
    found = find_workload(path) if isinstance(path, str) else path
    return read_workload(read_text(found), sizes or {}, dtypes or {})


def parse_workload(
    data: Mapping[str, object],
    sizes: Mapping[str, int] | None = None,
    file: str = "<workload>",
    dtypes: Mapping[str, str] | None = None,
) -> Workload:
    """A workload from plain Python data, as `load_workload` reads it from a file."""
    return _workload(from_python(data, file), sizes or {}, dtypes or {})


_PARTS = (
    "parameters", "memories", "buses", "units", "micro_kernels", "intrinsics", "configurations"
)  # fmt: skip


def _hardware(document: Document, parameters: Mapping[str, int], trusted: bool) -> HardwareSpec:
    from hwgen.spec.checks import check_hardware
    from hwgen.spec.resolve import resolve_hardware
    from hwgen.spec.schema import HardwareSchema

    _refuse_other(document, "spec")
    findings = Findings()
    with findings.reported():
        schema = validate(HardwareSchema, document, findings, _PARTS)
        hardware = resolve_hardware(schema, document, parameters, findings)
        check_hardware(hardware, schema, document, findings)
    return replace(hardware, trusted=trusted)


def _workload(document: Document, sizes: Mapping[str, int], dtypes: Mapping[str, str]) -> Workload:
    from hwgen.spec.workload_resolve import resolve_workload
    from hwgen.spec.workload_schema import WorkloadSchema

    _refuse_other(document, "workload")
    findings = Findings()
    with findings.reported():
        schema = validate(WorkloadSchema, document, findings, ("sizes", "tensors"))
        return resolve_workload(schema, document, sizes, findings, dtypes)


def _refuse_other(document: Document, kind: Kind) -> None:
    """A chip where a workload is wanted, or the other way round, has every field wrong."""
    other: Kind = "workload" if kind == "spec" else "spec"
    theirs, ours = SIGNS[other], SIGNS[kind]
    data = document.data
    if not isinstance(data, dict) or any(name in data for name in ours):
        return
    signs = [name for name in theirs if name in data]
    if signs:
        words: dict[Kind, str] = {"spec": "chip", "workload": "workload"}
        raise HwgenError(
            "H031",
            f"this is a {words[other]}, and a {words[kind]} is wanted here",
            location=document.locate((signs[0],), key=True),
            field=signs[0],
            found=" and ".join(signs),
            allowed=f"a {words[kind]}, which has {' and '.join(ours)}",
            repair=f"give this file with --{other}",
        )


def make_workload(
    name: str,
    *,
    sizes: Mapping[str, int | str] | None = None,
    dtypes: Mapping[str, str] | None = None,
    tensors: Mapping[str, str | Mapping[str, object]],
    compute: Sequence[str | Mapping[str, object]],
    description: str = "",
) -> Workload:
    """A workload written in Python; every argument reads as the YAML field of its name.

    Raises:
        HwgenError: as `load_workload`, without line numbers.
    """
    data: dict[str, object] = {
        "name": name, "description": description, "sizes": sizes or {}, "dtypes": dtypes or {},
        "tensors": tensors, "compute": compute,
    }  # fmt: skip
    return parse_workload(data, file="<python>")


def hardware_json_schema() -> dict[str, object]:
    """The JSON Schema of a chip's file, for editors."""
    from hwgen.spec import schema, schema_processor, schema_synchronization
    from hwgen.spec.json_schema import json_schema

    modules = [schema, schema_processor, *map(import_module, schema_synchronization.MODULES)]
    return json_schema(schema.HardwareSchema, modules, "hwgen: a chip")


def workload_json_schema() -> dict[str, object]:
    """The JSON Schema of a workload's file, for editors."""
    from hwgen.spec import workload_schema
    from hwgen.spec.json_schema import json_schema

    return json_schema(workload_schema.WorkloadSchema, [workload_schema], "hwgen: a workload")
