"""The JSON Schemas and the field tables in `docs/` are those of the models."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
from pydantic import TypeAdapter

from hwgen.cli import main
from hwgen.pipeline import compile_kernel
from hwgen.spec import schema, schema_processor, schema_synchronization, workload_schema
from hwgen.spec.find import find_workload
from hwgen.spec.json_schema import field_docstrings
from hwgen.spec.load import (
    hardware_json_schema,
    load_workload,
    parse_hardware,
    workload_json_schema,
)
from hwgen.spec.ranges import Range
from hwgen.spec.source import parse_document
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.conftest import Golden
from tests.pages import Page

ROOT = Path(__file__).parents[3]


def test_json_schemas(golden: Golden) -> None:
    for name, made in (
        ("hwgen.schema.json", hardware_json_schema()),
        ("hwgen-workload.schema.json", workload_json_schema()),
    ):
        golden(ROOT / "docs" / name, json.dumps(made, indent=2))


def _kind(properties: dict[str, Any]) -> str:
    """A field's type, for a person."""
    if "$ref" in properties:
        return _heading(properties["$ref"].rsplit("/", 1)[-1])
    if "const" in properties:
        return str(properties["const"])
    if "enum" in properties:
        return (
            ", ".join(map(str, properties["enum"])) if len(properties["enum"]) < 4 else "data type"
        )
    if "anyOf" in properties or "oneOf" in properties:
        parts = [_kind(p) for p in properties.get("anyOf") or properties["oneOf"]]
        parts = [p for p in parts if p != "nothing"]
        short = {"integer or text": "integer", "integer or text or list of integer": "range",
                 "integer or number or text": "number"}  # fmt: skip
        return short.get(" or ".join(parts), " or ".join(parts))
    match properties.get("type"):
        case "array":
            return f"list of {_kind(properties['items'])}"
        case "object":
            inner = next(iter(properties["patternProperties"].values()))
            return f"names: {_kind(inner)}"
        case "string":
            return "name" if "pattern" in properties else "text"
        case "integer" | "number" as known:
            return known
        case "boolean":
            return "true or false"
        case _:
            return "nothing"


def _heading(model: str) -> str:
    words = re.findall(r"[A-Z][a-z]+", model.removesuffix("Schema"))
    return " ".join(words).lower()


def _default(value: Any) -> str:
    """What a field that is left out stands for; without one, its meaning says what is then."""
    if value is None:
        return ""
    if value in ("", [], {}):
        return "none"
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _tables(made: dict[str, Any], modules: list[ModuleType], top: str) -> str:
    definitions: dict[str, Any] = {top: made, **made.get("$defs", {})}
    docs = {name: fields for m in modules for name, fields in field_docstrings(m).items()}
    lines: list[str] = []
    for model in [top, *(m for m in docs if m in definitions and m != top)]:
        definition = definitions[model]
        lines += [f"### {_heading(model)}", "", definition["description"], ""]
        lines += ["| field | type | default | meaning |", "|---|---|---|---|"]
        for name, properties in definition["properties"].items():
            needed = name in definition.get("required", [])
            default = "needed" if needed else _default(properties["default"])
            text = properties["description"].replace("|", "\\|")
            lines.append(f"| `{name}` | {_kind(properties)} | {default} | {text} |")
        lines.append("")
    return "\n".join(lines).rstrip()


@pytest.mark.parametrize(
    ("page", "made", "modules", "top"),
    [
        (
            "spec-reference.md",
            hardware_json_schema(),
            [schema, schema_processor, *map(import_module, schema_synchronization.MODULES)],
            "HardwareSchema",
        ),
        ("workload.md", workload_json_schema(), [workload_schema], "WorkloadSchema"),
    ],
    ids=["spec", "workload"],
)
def test_field_tables(
    page: str, made: dict[str, Any], modules: list[ModuleType], top: str, golden: Golden
) -> None:
    path = ROOT / "docs" / page
    text = path.read_text(encoding="utf-8")
    before, _, rest = text.partition("<!-- fields: begin -->")
    _, _, after = rest.partition("<!-- fields: end -->")
    tables = _tables(made, modules, top)
    golden(path, f"{before}<!-- fields: begin -->\n{tables}\n<!-- fields: end -->{after}")


def test_every_field_without_a_default_says_what_is_then() -> None:
    """`left out`, or when it is needed or allowed at all."""
    words = ("left out", "Left out", "needed", "Needed", "only", "in place of")
    silent: list[str] = []
    for made in (hardware_json_schema(), workload_json_schema()):
        nested = cast("dict[str, Any]", made["$defs"])
        definitions: dict[str, Any] = {"": made, **nested}
        for model, definition in definitions.items():
            for name, properties in definition["properties"].items():
                described = any(w in properties["description"] for w in words)
                if properties.get("default", "") is None and not described:
                    silent.append(f"{model}.{name}")
    assert silent == []


def test_every_field_has_a_docstring() -> None:
    for made in (hardware_json_schema(), workload_json_schema()):
        nested = cast("dict[str, Any]", made["$defs"])
        definitions: dict[str, Any] = {"": made, **nested}
        for definition in definitions.values():
            for properties in definition["properties"].values():
                assert properties["description"].endswith(".")


def test_the_examples_of_synchronization_are_of_every_kind() -> None:
    page = (ROOT / "docs/spec-advanced.md").read_text(encoding="utf-8")
    section = page.split("## Synchronization\n")[1].split("\n## ")[0]
    kinds: list[str] = []
    for block in section.split("```yaml\n")[1:]:
        data = parse_document(block.split("```")[0], "spec-advanced.md").data
        assert isinstance(data, dict)
        # Strict models take what YAML gives; an unknown field or a wrong type raises.
        made = TypeAdapter[Any](schema_synchronization.AnySynchronization).validate_python(
            data["synchronization"]
        )
        kinds.append(made.kind)
    assert kinds == ["tokens", *["barrier"] * 3, "events", "scoreboard", "none"]


def test_the_guide_to_chips_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its complete chip passes `hwgen check` and compiles to the C that the page shows."""
    monkeypatch.chdir(tmp_path)
    page = Page(ROOT / "docs" / "spec.md", monkeypatch, capsys)
    page.run()
    assert page.commands == 2
    simulate = ["simulate", "--spec", "vec.yaml", "--workload", "sum.yaml"]
    assert main(simulate) == 0
    assert "equal to the reference, bit for bit" in capsys.readouterr().out


def test_other_sizes_of_the_guides_memory_have_other_slots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the page says of `size: 24 KiB`."""
    monkeypatch.chdir(tmp_path)
    Page(ROOT / "docs" / "spec.md", monkeypatch, capsys).run()
    chip = Path("vec.yaml").read_text("utf-8")
    for size, slots in (("16 KiB", ["1", "1", "2"]), ("24 KiB", ["2", "2", "2"])):
        Path("vec.yaml").write_text(chip.replace("16 KiB", size), encoding="utf-8")
        assert main(["generate", "--spec", "vec.yaml", "--workload", "sum.yaml"]) == 0
        rows = re.findall(r"[xyz]_local +[xyz] +(\d)", capsys.readouterr().out)
        assert rows == slots


PARTS = {
    "rows": ("spec.md", "more dimension than an entry:\n", "", "* 16"),
    "overwriting": ("spec-advanced.md", "no intrinsic that clears:\n", "zero", "MAC_OVERWRITE"),
    "pitch": ("spec-advanced.md", "any number of elements:\n", "", "load_x("),
}
"""The page, the text before a block of it, an intrinsic that the block replaces, and text in the C
of a kernel."""


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_the_pages_work_in_the_chip_of_the_readme(name: str) -> None:
    page, before, replaced, text = PARTS[name]
    chip = _yaml("README.md", "## A chip in 34 lines\n")
    found = _yaml(f"docs/{page}", before)
    part = found if "intrinsics" in found else {"intrinsics": found}
    chip["memories"] |= part.get("memories", {})
    for intrinsic, fields in part["intrinsics"].items():
        chip["intrinsics"][intrinsic] = chip["intrinsics"].get(intrinsic, {}) | fields
    chip["intrinsics"].pop(replaced, None)
    sizes = {"M": 4, "N": 32, "K": 64}
    kernel = compile_kernel(load_workload(find_workload("gemm"), sizes), parse_hardware(chip))
    examine(kernel, draw_inputs(kernel.workload, 0), "python")
    assert text in kernel.stage("emit")


def _yaml(page: str, before: str) -> dict[str, Any]:
    """The first block of YAML after a text."""
    text = (ROOT / page).read_text("utf-8").split(before)[1].split("```yaml\n")[1].split("```")[0]
    return cast("dict[str, Any]", parse_document(text, page).data)


def test_the_example_of_a_processor_loads() -> None:
    page = (ROOT / "docs/spec-advanced.md").read_text(encoding="utf-8")
    text = page.split("## Processors\n")[1].split("```yaml\n")[1].split("```")[0]
    data = parse_document(text, "spec-advanced.md").data
    assert isinstance(data, dict)
    chip = parse_hardware(data, {"CORES": 3})
    assert chip.processor is not None
    assert chip.processor.workers == 3
    assert chip.intrinsic["axpy"].operand("y").strides == (Range(1, 1),)


def test_every_code_is_documented() -> None:
    pages = "".join(
        (ROOT / "docs" / p).read_text(encoding="utf-8")
        for p in ("spec-reference.md", "workload.md")
    )
    sources = (ROOT / "hwgen/spec").glob("*.py")
    # Those of programs, H7, have a page of their own.
    text = "".join(p.read_text(encoding="utf-8") for p in sources)
    codes = {*re.findall(r'"(H[0-6]\d{2})"', text)}
    assert {c for c in codes if c not in pages} == set()


def test_examples_in_the_workload_page_agree() -> None:
    import hwgen
    from hwgen.spec.load import parse_workload
    from hwgen.spec.source import parse_document

    page = (ROOT / "docs/workload.md").read_text(encoding="utf-8")
    yaml_text = page.split("```yaml\n")[1].split("```")[0]
    data = parse_document(yaml_text, "workload.md").data
    assert isinstance(data, dict)
    expected = hwgen.workload(
        "linear",
        sizes={"M": 4, "N": 8, "K": 16},
        tensors={
            "x": "int8[M, K]",
            "w": {"type": "int8[N, K]", "constant": True},
            "acc": "int32[M, N]",
            "y": "int8[M, N]",
        },
        compute=[
            "acc[m, n] += x[m, k] * w[n, k]",
            "y[m, n] = int8(clip(acc[m, n], -128, 127))",
        ],
    )
    assert parse_workload(data) == expected
