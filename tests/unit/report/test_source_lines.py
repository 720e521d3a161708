"""Lines of the C and of the script, against the texts themselves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hwgen.codegen.nodes import Code, calls
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.pipeline import compile_kernel
from hwgen.report.source_lines import BEGIN, END, c_source, nest_source, script_source, unmarked
from hwgen.spec.load import load_hardware, load_workload
from tests.sampling import QUICK, THOROUGH

ROOT = Path(__file__).resolve().parents[3]


def first_word(template: str) -> str:
    """The first word of a template that is no field."""
    found = re.search(r"\b[A-Za-z_]{4,}", re.sub(r"{[{%].*?[%}]}", "", template, flags=re.DOTALL))
    return found[0] if found is not None else "("  # All of it is fields.


@pytest.mark.parametrize(
    ("chip", "workload"),
    [
        ("vta", "gemm_requant"),
        ("gemmini", "gemm_scaled"),  # C loops around calls, and calls of several lines.
        ("npu_shared_buffer", "attention"),  # Phases.
        ("vtcm_two_banks", "matmul"),
    ],
)
def test_every_call_site_has_the_lines_of_its_call(chip: str, workload: str) -> None:
    c = compile_kernel(
        load_workload(ROOT / "workloads" / f"{workload}.yaml"),
        load_hardware(ROOT / "hw_specs" / f"{chip}.yaml"),
        options=QUICK,
    )
    source = c_source(c)
    assert source.text == c.source.c
    lines = source.text.split("\n")
    parts = (p for p in c.program.parts if not isinstance(p, Code))
    sites = {str(call.site): call for part in parts for call in calls(part.body)}
    assert source.lines.keys() == sites.keys()
    for key, call in sites.items():
        text = "\n".join(lines[n - 1] for n in source.lines[key])
        assert first_word(c.hardware.intrinsic[call.intrinsic].emit) in text
    taken = [n for numbers in source.lines.values() for n in numbers]
    assert len(taken) == len(set(taken))
    assert f" {c.source.function}_run(" in lines[source.opening - 1]


def test_marks_are_taken_out_and_lines_of_a_mark_alone_are_none() -> None:
    text = f"a\n  {BEGIN}\n  b(\n  );\n  {END}\n  {BEGIN}c();{END}\nd\n"
    assert unmarked(text) == ("a\n  b(\n  );\n  c();\nd\n", [(2, 3), (4,)])


def test_a_template_that_has_the_mark_itself_gives_no_lines_and_the_text_as_it_is() -> None:
    """A wrong line would be worse than none."""
    from dataclasses import replace

    chip = load_hardware(ROOT / "hw_specs" / "vta.yaml")
    odd = replace(
        chip, intrinsics=tuple(replace(i, emit=f"{i.emit} {END}") for i in chip.intrinsics)
    )
    c = compile_kernel(load_workload(ROOT / "workloads" / "relu.yaml"), odd, options=QUICK)
    source = c_source(c)
    assert source.text == c.source.c
    assert source.lines == {}
    assert source.opening == 1


@pytest.mark.parametrize(
    ("workload", "chip"),
    [
        ("gemm_requant", "cuda_generic"),
        ("layernorm", "cpu_generic"),
        pytest.param("gemm_requant", "cpu_generic", marks=THOROUGH),
        pytest.param("layernorm", "cuda_generic", marks=THOROUGH),
    ],
)
def test_a_block_has_its_innermost_loop(chip: str, workload: str) -> None:
    c = compile_nest(
        load_workload(ROOT / "workloads" / f"{workload}.yaml"),
        load_hardware(ROOT / "hw_specs" / f"{chip}.yaml"),
    )
    source = nest_source(c)
    assert source.text == c.source.c
    lines = source.text.split("\n")
    assert len(source.lines) >= len(c.cost.blocks) // 2
    head, following = lines[source.opening - 1 : source.opening + 1]
    assert re.match(r"(static|void) .*\(.*\)$", head)
    assert following == "{"
    first = min(n for numbers in source.lines.values() for n in numbers)
    assert "}" not in lines[source.opening : first]
    for block, numbers in source.lines.items():
        text = [lines[n - 1] for n in numbers]
        assert text[0].lstrip().startswith("for (")
        assert text[-1].strip() == "}"
        indent = len(text[0]) - len(text[0].lstrip())
        inside = [x for x in text[1:-1] if not x.startswith("#")]  # A pragma is never indented.
        assert all(len(x) - len(x.lstrip()) > indent for x in inside)
        if workload == "gemm_requant":  # Else names of parts of a sum are none of tensors.
            tensor = block.removesuffix("_init")
            assert any(re.search(rf"\b{tensor}\b.*=", x) for x in text[1:-1]), block


def test_a_script_is_searched_for_whole_words() -> None:
    script = "s.tensorize(n_i, 'gemm')\ns.tensorize(m_i, 'gemm_wide')\ns.split('c')\n"
    assert script_source(script, {"gemm": "gemm", "none": "nop"}).lines == {"gemm": (1,)}
