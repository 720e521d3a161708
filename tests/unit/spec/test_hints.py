"""Hints about templates: valid C that does other things than it seems to."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from hwgen.spec.find import shipped_in
from hwgen.spec.hints import hints
from hwgen.spec.load import load_hardware, parse_hardware
from hwgen.spec.source import from_python, read_document

SPECS = Path(__file__).parents[2] / "specs"
VTA = next(p for p in shipped_in("hw_specs") if p.stem == "vta")


def said(argument: str, handle: str = "void *", emit: str = "f({}, {{{{ dst.address }}}});") -> str:
    """The hints of a chip whose only load of 16-byte rows passes this."""
    data = cast("dict[str, Any]", read_document(VTA).data)
    data["code"]["handle_type"] = handle
    data["intrinsics"]["load_inp"]["emit"] = emit.format(argument)
    document = from_python(data, "chip")
    return "\n".join(h.text for h in hints(parse_hardware(data), document))


@pytest.mark.parametrize(
    ("argument", "handle", "bytes_"),
    [
        ("{{ src.buffer }} + {{ src.address }}", "void *", 1),
        ("{{src.buffer}}+{{ src.base }} + {{ src.displacement }}", "void *", 1),
        ("{{ src.buffer }} + ({{ src.address }})", "const void *", 1),
        ("({{ src.buffer }}) + {{ src.address }}", "uint32_t ", 1),
        ("(char *){{ src.buffer }} + {{ src.address }}", "chip_buffer ", 1),
        ("((const int32_t *){{ src.buffer }}) + {{ src.address }}", "void *", 4),
        ("{{ src.buffer }} + {{ src.address }}", "int64_t *", 8),
    ],
)
def test_a_step_of_other_bytes_than_an_entry_has(argument: str, handle: str, bytes_: int) -> None:
    found = said(argument, handle)
    assert f"in load_inp moves by {bytes_} of the 16 bytes of each entry;" in found


@pytest.mark.parametrize(
    ("argument", "handle"),
    [
        ("{{ src.buffer }}, {{ src.address }}", "void *"),
        ("(char *){{ src.buffer }} + {{ src.address }} * 16", "void *"),
        ("(char *){{ src.buffer }} + ({{ src.address }} * 16)", "void *"),
        ("{{ src.buffer }} + ({{ src.address }} << 4)", "uint32_t "),
        ("{{ src.buffer }} + {{ src.address }}", "chip_row *"),
        ("(chip_row *){{ src.buffer }} + {{ src.address }}", "void *"),
        ("{{ src.buffer }} + {{ src.address }}", "chip_buffer "),
    ],
)
def test_a_step_that_is_right_or_the_vendors(argument: str, handle: str) -> None:
    assert "moves by" not in said(argument, handle)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("{dst.address}", ["dst.address"]),
        ("{ src.buffer }, {BATCH}", ["src.buffer", "BATCH"]),
        ("{ {{ src.buffer }} }", []),
        ("(struct row){0}, {{% if true %}}{other}{{% endif %}}", []),
    ],
)
def test_names_in_single_braces(text: str, names: list[str]) -> None:
    found = said(text.replace("{{%", "{%").replace("%}}", "%}"))
    for name in ("dst.address", "src.buffer", "BATCH", "other"):
        assert (f"{{{name}}} in intrinsics.load_inp.emit" in found) == (name in names)
    assert all(f"the value is {{{{ {n} }}}}" in found for n in names)


def test_shipped_chips_give_none() -> None:
    for path in shipped_in("hw_specs"):
        assert hints(load_hardware(path), read_document(path)) == ()


def ended(epilogue: str, chip: str = "two_stage_barrier") -> str:
    """The hint about the end of the kernels of a chip whose unit `mover` stores."""
    data = cast("dict[str, Any]", read_document(SPECS / f"{chip}.yaml").data)
    data["code"]["epilogue"] = epilogue
    document = from_python(data, "chip")
    found = (h.text for h in hints(parse_hardware(data), document))
    return "\n".join(t for t in found if "code.epilogue" in t)


@pytest.mark.parametrize(
    ("chip", "epilogue", "says"),
    [
        ("two_stage_barrier", "", "write epilogue: 'wait_mover();', or a comment"),
        ("two_stage_barrier", " ;\n", "there is no code.epilogue, so the kernel may copy"),
        ("two_stage_barrier", "wait_core();", "code.epilogue waits for core, so the kernel"),
        ("two_stage_counted", "wait_core(0);", "write epilogue: 'wait_mover(0);', or"),
        ("two_stage_scoreboard", "", "write epilogue: 'fence();', or a comment"),
        ("two_stage", "", "write epilogue: a call that waits, or a comment"),
    ],
)
def test_an_end_that_waits_for_no_store(chip: str, epilogue: str, says: str) -> None:
    found = ended(epilogue, chip)
    assert says in found
    assert "while store still runs on mover" in found


@pytest.mark.parametrize(
    ("chip", "epilogue"),
    [
        ("two_stage_barrier", "wait_core();\nwait_mover();"),
        ("two_stage_barrier", "wait_core(); finish();"),
        ("two_stage_barrier", "/* Calls return when they are done. */"),
        ("two_stage_counted", "wait_mover(0);"),
        ("one_unit", ""),
    ],
)
def test_an_end_that_waits_or_need_not(chip: str, epilogue: str) -> None:
    assert ended(epilogue, chip) == ""
