"""Rules about the source text itself; each has a test that it can fail."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "hwgen"

LAYERS = (
    "errors", "packages", "constants", "spec", "polyhedral", "polyhedral.tree",
    "polyhedral.schedule", "polyhedral.match", "polyhedral.search", "codegen", "model",
    "autoschedule", "passes", "pipeline", "completing", "verify", "report", "network",
    "exploration", "calibrate", "cli", "kernel",
)  # fmt: skip
"""A module imports from its own layer and those before it."""
ISL_MODULE = "hwgen/polyhedral/isl.py"
CLOCKS = (
    "hwgen/polyhedral/search/search.py",  # the limit that --search-seconds asks for
    "hwgen/verify/executors.py",  # the limit that --timeout asks for
    "hwgen/verify/cluster.py",  # the same
    "hwgen/cli/progress.py",  # the progress bar, and lines of progress
    "hwgen/cli/simulate.py",  # how long a run took, in words
    "hwgen/cli/nest.py",
)
"""Who may look at a clock, and for what."""
PRINTING_LAYERS = ("cli", "report")
LINE_LIMIT = 600
FORBIDDEN_MODULES = ("pickle", "cPickle", "marshal", "shelve", "dill")
FORBIDDEN_CALLS = ("eval", "exec", "sympify", "parse_expr")

Rule = Callable[[str, str], Iterator[str]]


@lru_cache(maxsize=1)
def nodes(text: str) -> tuple[ast.AST, ...]:
    """What a source text consists of; of the last one, as every rule looks at it in turn."""
    return tuple(ast.walk(ast.parse(text)))


def words(text: str) -> list[str]:
    """The lower-case words of a text; `camelCase`, `SNAKE_CASE` and digits are split."""
    pattern = r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+"
    return [w.lower() for w in re.findall(pattern, text)]


def names_a_chip(text: str, chips: tuple[str, ...]) -> Iterator[str]:
    names = [(chip, words(chip)) for chip in chips]
    for number, line in enumerate(text.splitlines(), 1):
        found = words(line)
        for chip, wanted in names:
            if wanted[0] not in found:
                continue
            windows = (found[i : i + len(wanted)] for i in range(len(found)))
            if any(window == wanted for window in windows):
                yield f"line {number} names the chip {chip}"


def imported_modules(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of everything that a file imports, at any depth."""
    package = path.removesuffix(".py").removesuffix("/__init__").split("/")
    if not path.endswith("__init__.py"):
        package = package[:-1]
    for node in nodes(text):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield node.lineno, alias.name
            case ast.ImportFrom(module=module, names=names, level=level):
                base = package[: len(package) - level + 1] if level else []
                prefix = ".".join([*base, *([module] if module else [])])
                for alias in names:
                    yield node.lineno, f"{prefix}.{alias.name}"
            case _:
                pass


def layer(module: str) -> int | None:
    """Position in LAYERS of `hwgen.LAYER...`, the innermost that has it; None outside the package
    and for `hwgen` itself."""
    parts = module.split(".")
    names = [".".join(parts[1:n]) for n in range(len(parts), 1, -1)]
    found = [LAYERS.index(n) for n in names if n in LAYERS]
    return found[0] if parts[0] == "hwgen" and found else None


def imports_go_one_way(path: str, text: str) -> Iterator[str]:
    own = layer(path.removesuffix(".py").replace("/", "."))
    if own is None:
        return  # The package's front door (`__init__`, `__main__`) sees every layer.
    for line, module in imported_modules(path, text):
        theirs = layer(module)
        if theirs is not None and theirs > own:
            yield f"line {line}: {LAYERS[own]} imports {module}, a later layer"


def only_one_module_imports_isl(path: str, text: str) -> Iterator[str]:
    if path == ISL_MODULE:
        return
    for line, module in imported_modules(path, text):
        if module.split(".")[0] == "islpy":
            yield f"line {line} imports islpy"


def reads_no_clock(path: str, text: str) -> Iterator[str]:
    """Nothing that is decided depends on the machine's speed."""
    if path in CLOCKS:
        return
    for line, module in imported_modules(path, text):
        if module.split(".")[0] in ("time", "timeit", "datetime"):
            yield f"line {line} imports {module}"


def is_short(_: str, text: str) -> Iterator[str]:
    if (count := len(text.splitlines())) > LINE_LIMIT:
        yield f"{count} lines; at most {LINE_LIMIT}"


def runs_no_text(path: str, text: str) -> Iterator[str]:
    for node in nodes(text):
        match node:
            # The builtin only: isl has a method eval, for the value of a function at a point.
            case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN_CALLS:
                yield f"line {node.lineno} calls {name}"
            case ast.Call(func=ast.Attribute(attr=("sympify" | "parse_expr") as name)):
                yield f"line {node.lineno} calls {name}"
            case _:
                pass
    for line, module in imported_modules(path, text):
        if set(module.split(".")) & {*FORBIDDEN_MODULES, "sympify", "parse_expr"}:
            yield f"line {line} imports {module}"


def swallows_nothing(_: str, text: str) -> Iterator[str]:
    broad = ("Exception", "BaseException")
    for node in nodes(text):
        match node:
            case ast.ExceptHandler(type=None):
                yield f"line {node.lineno}: bare except"
            case ast.ExceptHandler(type=ast.Name(id=name), body=[ast.Pass()]) if name in broad:
                yield f"line {node.lineno}: swallows {name}"
            case ast.Call(func=ast.Name("suppress") | ast.Attribute(attr="suppress"), args=args):
                if any(isinstance(a, ast.Name) and a.id in broad for a in args):
                    yield f"line {node.lineno}: suppresses everything"
            case _:
                pass


def prints_nothing(path: str, text: str) -> Iterator[str]:
    parts = path.removesuffix(".py").split("/")
    if parts[1] in PRINTING_LAYERS:
        return
    for node in nodes(text):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "print"
        ):
            yield f"line {node.lineno} prints"


def sources() -> Iterator[tuple[str, str]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def chip_names() -> tuple[str, ...]:
    """Each spec's file name and its `name:` field."""
    found: set[str] = set()
    for path in (ROOT / "hw_specs").iterdir():
        if path.suffix in (".yaml", ".yml", ".json"):
            found.add(path.stem)
            text = path.read_text(encoding="utf-8")
            if match := re.search(r"^\s*[\"']?name[\"']?:\s*[\"']?(\w+)", text, re.MULTILINE):
                found.add(match[1])
    return tuple(sorted(found))


RULES: tuple[Rule, ...] = (
    imports_go_one_way,
    only_one_module_imports_isl,
    reads_no_clock,
    is_short,
    runs_no_text,
    swallows_nothing,
    prints_nothing,
)


def rule_name(rule: Rule) -> str:
    return getattr(rule, "__name__", "rule")


@cache
def broken() -> dict[str, list[str]]:
    """By rule, what breaks it; file by file, so that each is parsed once."""
    found: dict[str, list[str]] = {rule_name(rule): [] for rule in RULES}
    for path, text in sources():
        for rule in RULES:
            found[rule_name(rule)] += [f"{path}: {b}" for b in rule(path, text)]
    return found


@pytest.mark.parametrize("rule", RULES, ids=rule_name)
def test_every_source_file_keeps_the_rule(rule: Rule) -> None:
    assert not broken()[rule_name(rule)], "\n".join(broken()[rule_name(rule)])


def test_every_module_has_a_layer() -> None:
    """Except those that are the package itself."""
    modules = {path: layer(path.removesuffix(".py").replace("/", ".")) for path, _ in sources()}
    apart = [path for path, found in modules.items() if found is None]
    assert apart == ["hwgen/__init__.py", "hwgen/__main__.py"]


def test_no_source_file_names_a_chip() -> None:
    chips = chip_names()
    assert chips, "no spec found in hw_specs"
    files = [p for p in sorted(PACKAGE.rglob("*")) if p.is_file() and "__pycache__" not in p.parts]
    broken = [
        f"{path.relative_to(ROOT)}: {b}"
        for path in files
        for b in names_a_chip(path.read_text(encoding="utf-8"), chips)
    ]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(
    "line", ["# for vta only", "VTADepPush(cmd)", 'if name == "VTA":', "is_vta = 1", "class Vta2:"]
)
def test_a_chips_name_is_found(line: str) -> None:
    assert list(names_a_chip(f"\n{line}\n", ("vta",))) == ["line 2 names the chip vta"]


@pytest.mark.parametrize("line", ["pivtable", "vital", "", "npu_local_buffer"])
def test_other_words_are_no_chips_name(line: str) -> None:
    assert not list(names_a_chip(line, ("vta", "npu_shared_buffer")))


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (imports_go_one_way, "hwgen/spec/load.py", "from hwgen.codegen import program"),
        (imports_go_one_way, "hwgen/spec/load.py", "from hwgen import pipeline"),
        (imports_go_one_way, "hwgen/errors.py", "import hwgen.spec.workload"),
        (imports_go_one_way, "hwgen/polyhedral/tree/edit.py", "import hwgen.polyhedral.search"),
        (imports_go_one_way, "hwgen/passes/phase.py", "from hwgen.completing import completed"),
        (imports_go_one_way, "hwgen/model/timing.py", "def f():\n    from .. import verify"),
        (imports_go_one_way, "hwgen/polyhedral/__init__.py", "from ..codegen.program import Call"),
        (only_one_module_imports_isl, "hwgen/codegen/layout.py", "import islpy as isl"),
        (only_one_module_imports_isl, "hwgen/polyhedral/scop.py", "from islpy import Set"),
        (reads_no_clock, "hwgen/passes/phase.py", "from time import monotonic"),
        (reads_no_clock, "hwgen/polyhedral/search/choose.py", "import time"),
        (is_short, "hwgen/spec/load.py", "\n" * 601),
        (runs_no_text, "hwgen/spec/load.py", "eval('1')"),
        (runs_no_text, "hwgen/spec/load.py", "exec(text)"),
        (runs_no_text, "hwgen/spec/load.py", "import sympy\nsympy.sympify(text)"),
        (runs_no_text, "hwgen/spec/load.py", "from sympy import sympify as parse"),
        (runs_no_text, "hwgen/spec/load.py", "import pickle"),
        (swallows_nothing, "hwgen/spec/load.py", "try:\n    f()\nexcept:\n    raise"),
        (swallows_nothing, "hwgen/spec/load.py", "try:\n    f()\nexcept Exception:\n    pass"),
        (swallows_nothing, "hwgen/spec/load.py", "with suppress(Exception):\n    f()"),
        (prints_nothing, "hwgen/spec/load.py", "print(1)"),
        (prints_nothing, "hwgen/pipeline.py", "def f():\n    print(1)"),
    ],
)
def test_the_rule_can_fail(rule: Rule, path: str, text: str) -> None:
    assert list(rule(path, text))


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (
            imports_go_one_way,
            "hwgen/codegen/layout.py",
            "from hwgen.spec.workload import Workload",
        ),
        (imports_go_one_way, "hwgen/model/timing.py", "from . import reference\nimport numpy"),
        (imports_go_one_way, "hwgen/__init__.py", "from hwgen.cli import main"),
        (only_one_module_imports_isl, ISL_MODULE, "import islpy"),
        (reads_no_clock, "hwgen/polyhedral/search/search.py", "from time import perf_counter"),
        (runs_no_text, "hwgen/polyhedral/isl.py", "value = quasi_polynomial.eval(point)"),
        (swallows_nothing, "hwgen/spec/load.py", "try:\n    f()\nexcept KeyError:\n    pass"),
        (prints_nothing, "hwgen/cli/app.py", "print(1)"),
    ],
)
def test_the_rule_lets_good_code_pass(rule: Rule, path: str, text: str) -> None:
    assert not list(rule(path, text))
