"""Native code with text of a spec runs only where its user says so (SECURITY.md)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import hwgen
from hwgen.cli import main
from hwgen.codegen.c_names import comment
from hwgen.errors import HwgenError, Location
from hwgen.model.c_compiler import have_compiler
from hwgen.pipeline import compile_workload
from hwgen.spec.find import shipped
from hwgen.spec.load import load_hardware, parse_hardware, parse_workload
from hwgen.spec.source import read_document
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.conformance.exhaustive import gemm, half
from tests.fuzz.__main__ import main as fuzz
from tests.samples import CHIPS_WITH_UNITS
from tests.sampling import tiered

pytestmark = pytest.mark.skipif(not have_compiler(), reason="needs a C compiler")

SPECS = shipped("hw_specs")
WORKLOAD = """
name: scale
tensors: {x: "float32[64]", t: "float32[64]", y: "float32[64]"}
compute: ["t[i] = x[i] * 2", "y[i] = t[63 - i]"]
"""
Data = dict[str, Any]
PLACES = ("prologue", "epilogue", "definitions", "function_prologue", "loops", "allocate")
"""Of a processor's spec: their text becomes C."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, as the current one, with a workload in it."""
    monkeypatch.chdir(tmp_path)
    Path("scale.yaml").write_text(WORKLOAD)
    return tmp_path


def chip(name: str = "cpu_generic") -> Data:
    """The plain data of a shipped chip."""
    return cast(Data, read_document(SPECS / f"{name}.yaml").data)


def attack(place: str) -> Path:
    """Write a chip whose C leaves a file behind where it runs; that file."""
    left, data = Path("ran").absolute(), chip()
    call = f'system("touch {left}");'
    match place:
        case "definitions":
            code = f"__attribute__((constructor)) static void at_load(void) {{ {call} }}"
            data["code"][place] = code
        case "function_prologue":
            data["processor"][place] = call
        case "loops":
            for kind in data["processor"]["loops"].values():
                kind["emit"] = call
        case "allocate":
            for memory in data["memories"].values():
                memory[place] += f"\n{call}"
        case _:
            data["code"][place] = call
    Path("mine.json").write_text(json.dumps(data), encoding="utf-8")
    return left


def commands() -> Iterator[tuple[str, ...]]:
    yield "check", "mine"
    yield "explain", "--spec", "mine", "--workload", "scale"
    yield "generate", "--spec", "mine", "--workload", "scale", "-o", "out"
    yield "simulate", "--spec", "mine", "--workload", "scale"
    yield "simulate", "--spec", "mine", "--workload", "scale", "--engine", "c"
    yield "verify", "--spec", "mine", "--workload", "scale", "--examples", "3"
    yield "fuzz", "schedules", "3", "--spec", "mine", "--jobs", "1"
    yield "verify", "--spec", "mine", "--workloads", "2", "--jobs", "1"


def run(words: tuple[str, ...]) -> int:
    """The exit status of a command of hwgen, or of `python -m tests.fuzz`."""
    return fuzz(words[1:]) if words[0] == "fuzz" else main(words)


REFUSED = [
    ("simulate", "--engine"), ("verify", "--examples"), ("fuzz", "schedules"),
]  # fmt: skip


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("place", tiered(PLACES, PLACES[3:]))
def test_text_of_a_spec_runs_only_where_it_is_trusted(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    left = attack(place)
    for words in commands():
        status = run(words)
        refused = any(words[0] == c and o in words for c, o in REFUSED)
        told = capsys.readouterr()
        assert not left.exists(), words
        assert (status, "error[H707]" in told.err) == (int(refused), refused), (words, told)
    main(["simulate", "--spec", "mine", "--workload", "scale", "--trust"])
    assert left.exists()


@pytest.mark.usefixtures("here")
def test_the_simulator_says_what_was_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    attack("prologue")
    assert main(["simulate", "--spec", "mine", "--workload", "scale"]) == 0
    out = capsys.readouterr().out
    assert "(not by the emitted C: it has text of mine.json, which --trust lets run here)" in out
    assert "y equal to the reference" in out


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "words",
    [
        ("verify", "--workload", "scale", "--examples", "3"),
        ("fuzz", "schedules", "3", "--jobs", "1"),
    ],
)
def test_campaigns_run_what_is_trusted(words: tuple[str, ...]) -> None:
    left = attack("prologue")
    assert run((*words, "--spec", "mine", "--trust")) == 0
    assert left.exists()


@pytest.mark.usefixtures("here")
def test_python_runs_what_is_trusted() -> None:
    left = attack("prologue")
    x = np.arange(64, dtype=np.float32)
    kernel = hwgen.build("scale", "mine")
    with pytest.raises(HwgenError) as caught:
        kernel(x)
    assert (caught.value.code, caught.value.diagnostic.location) == (
        "H707", Location("mine.json"),
    )  # fmt: skip
    assert not kernel.check().ran_c
    python = hwgen.build("scale", "mine", engine="python")
    np.testing.assert_array_equal(python(x), 2 * x[::-1])
    assert not left.exists()
    chips: list[Callable[[], hwgen.Kernel]] = [
        lambda: hwgen.build("scale", "mine", trust=True),
        lambda: hwgen.build("scale", load_hardware("mine"), trust=True),
        lambda: hwgen.build("scale", load_hardware("mine", trust=True)),
        lambda: hwgen.build("scale", parse_hardware(chip(), trust=True)),
    ]
    for build in chips:
        np.testing.assert_array_equal(build()(x), 2 * x[::-1])
    assert left.exists()
    with pytest.raises(HwgenError):
        hwgen.build("scale", parse_hardware(chip()))(x)


@pytest.mark.usefixtures("here")
def test_what_comes_with_hwgen_is_known_by_its_text() -> None:
    theirs = SPECS / "cpu_generic.yaml"
    assert load_hardware("cpu_generic").trusted
    assert load_hardware("cpu_generic", {"CORES": 2}).trusted
    shutil.copy(theirs, "another_name.yaml")
    assert load_hardware("another_name").trusted
    for file in ("cpu_generic.yaml", "hw_specs/vta.yaml"):
        Path(file).parent.mkdir(exist_ok=True)
        Path(file).write_text(theirs.read_text(encoding="utf-8") + "\n", encoding="utf-8")
        mine = load_hardware(Path(file).stem)
        assert not mine.trusted
        assert mine.foreign == file
    linked = Path("linked.yaml")
    linked.symlink_to("cpu_generic.yaml")
    assert not load_hardware("linked").trusted


def test_trust_changes_nothing_else() -> None:
    theirs = load_hardware("cpu_generic")
    assert replace(theirs, trusted=False) == theirs
    from hwgen.passes.cache import canonical

    assert canonical(replace(theirs, trusted=False)) == canonical(theirs)


# The C model of units: hwgen's own words


MARK = "marked_text_of_the_spec"
OTHER = ("suffix", "reserved", "requires", "language")
"""Fields under those that become C, whose form is fixed."""


def marked(value: object, path: tuple[str, ...] = ()) -> object:
    """The data with a mark in every text that becomes C, or might."""
    if isinstance(value, dict):
        return {k: marked(v, (*path, str(k))) for k, v in cast(Data, value).items()}
    if isinstance(value, list):
        return [marked(v, path) for v in cast("list[object]", value)]
    texts = ("code", "emit", "allocate", "free", "description", "prefetch", "pragmas")
    if not isinstance(value, str) or {*texts}.isdisjoint(path) or path[-1] in OTHER:
        return value
    if path[-1] == "includes":
        return f'"{MARK}.h"'
    if path[-1] in ("handle_type", "null"):
        return f"{MARK} {value}"
    return f"{value} /* */ {MARK} \\\n ??/\n #include {MARK}\n"


def small() -> Iterator[Workload]:
    """One of them for every chip: what its units do alone."""
    relu = {"tensors": {"x": "int8[64]", "y": "int8[64]"}, "compute": ["y[i] = int8(max(x[i], 0))"]}
    yield parse_workload({"name": "relu", **relu})
    yield gemm(1, 16, 16)
    yield half(16, 16, 16)
    yield hwgen.load_workload("gemm_scaled", {"M": 16, "N": 16, "K": 16})
    sizes = {"M": 16, "N": 16, "K": 64}
    yield hwgen.load_workload("gemm", sizes, {"a": "uint8", "OUT": "int32"})
    yield hwgen.load_workload("gemm", sizes, {"T": "bfloat16", "ACC": "float32"})


@pytest.mark.parametrize(
    "path", tiered(CHIPS_WITH_UNITS, CHIPS_WITH_UNITS[::3]), ids=lambda p: p.stem
)
def test_no_text_of_a_spec_is_in_the_model_of_units(path: Path) -> None:
    """Names and numbers are; a part that a processor does is written by its templates."""
    hardware = parse_hardware(cast(Data, marked(chip(path.stem))))
    seen = set[bool]()
    for workload in small():
        try:
            made = compile_workload(workload, hardware)
        except HwgenError:
            continue
        source, coded = made.source, bool(made.program.codes)
        seen.add(coded)
        assert MARK in source.c
        assert (MARK in source.model) <= coded
        assert bool(source.foreign) == coded
        if not coded:
            break
    assert False in seen


@pytest.mark.usefixtures("here")
def test_no_text_of_a_spec_runs_natively() -> None:
    """A machine that has the instructions runs C of trusted specs alone."""
    data = chip("x86_avx2")
    data["code"] = {**cast(Data, data["code"]), "requires": ["__CHAR_BIT__"]}
    hardware = parse_hardware(data)
    assert hardware.foreign
    sizes = {"M": 4, "N": 9, "K": 5}
    assert hwgen.build("matmul", hardware, sizes=sizes).engine == "c"
    kernel = hwgen.build("matmul", hardware, sizes=sizes, engine="native")
    with pytest.raises(HwgenError, match="H707"):
        kernel(*draw_inputs(kernel.workload, 0).values())


@pytest.mark.usefixtures("here")
def test_units_run_without_trust_and_a_processor_beside_them_does_not() -> None:
    hardware = parse_hardware(chip("vta"))
    assert not hardware.trusted
    inputs = {"x": np.arange(-32, 32, dtype=np.int8)}
    text = {"name": "t", "tensors": {"x": "int8[64]", "y": "int8[64]"}}
    for value, coded in (("int8(max(x[i], 0))", False), ("int8(x[i] // 3)", True)):
        made = compile_workload(parse_workload({**text, "compute": [f"y[i] = {value}"]}), hardware)
        assert bool(made.program.codes) == coded
        assert examine(made, inputs, "both").ran_c != coded
        if coded:
            with pytest.raises(HwgenError) as caught:
                examine(made, inputs, "c")
            assert caught.value.code == "H707"


NAMES = (
    "a*/b", 'a"b', "a\\b", "a\nb", "a??/b", "a b", "a;b", "a(b", "a//b", "a\\\n", "a\n", "\u00e4",
    "",
)  # fmt: skip
"""Names that would end a comment, a text or a line of C."""


def renamed(data: Data, path: tuple[str, ...], name: str) -> Data:
    """The data with the first key at a path called otherwise, wherever it stands as a whole."""
    section = data
    for key in path:
        section = section[next(iter(section))] if key == "*" else section[key]
    before = next(iter(section))

    def again(value: object) -> object:
        if isinstance(value, dict):
            items = cast(Data, value).items()
            return {(name if k == before else k): again(v) for k, v in items}
        if isinstance(value, list):
            return [again(v) for v in cast("list[object]", value)]
        return name if value == before else value

    return cast(Data, again(data))


PATHS = [
    *((s,) for s in ("parameters", "memories", "units", "intrinsics", "buses", "micro_kernels")),
    *(("intrinsics", "*", s) for s in ("operands", "iterators", "loops")),
    ("processor", "loops"),
]


@pytest.mark.parametrize("path", PATHS, ids="/".join)
def test_a_name_of_a_spec_is_a_name(path: tuple[str, ...]) -> None:
    data = chip("cpu_generic" if path[0] == "processor" else "vta")
    for name in NAMES:
        with pytest.raises(HwgenError) as caught:
            parse_hardware(renamed(data, path, name))
        assert "H034" in {d.code for d in caught.value.diagnostics}, name
        with pytest.raises(HwgenError) as caught:
            parse_hardware({**data, "name": name})
        assert caught.value.code == "H034"


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_a_workload_is_a_name(name: str) -> None:
    """What runs on a shipped processor has no other text of a workload's."""
    given = {"name": "w", "tensors": {"x": "int8[4]", "y": "int8[4]"}, "compute": ["y[i] = x[i]"]}
    for wrong in (
        {**given, "name": name},
        {**given, "sizes": {name: 4}},
        {**given, "dtypes": {name: "int8"}},
        {**given, "tensors": {"y": "int8[4]", name: "int8[4]"}, "compute": [f"y[i] = {name}[i]"]},
        {**given, "tensors": {"x": f"{name}[4]", "y": "int8[4]"}},
        {**given, "compute": [f"y[{name or '+'};] = x[{name or '+'};]"]},
    ):
        with pytest.raises(HwgenError):
            parse_workload(wrong)


@pytest.mark.parametrize("text", ["*/", "*\\/", "*\\", "/*/", "**//", "??/", "\\\n", "*??/"])
def test_a_comment_ends_where_it_should(text: str) -> None:
    assert not {"*/", "\\", "??/", "/*"} & {
        made[n : n + size] for made in (comment(text),) for size in (1, 2, 3) for n in range(9)
    }
