"""Random sums over shared elements, and random parts of a tensor: the reference against plain
loops, and kernels against the reference."""

from __future__ import annotations

from functools import cache
from itertools import product
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import hwgen
from hwgen.errors import HwgenError
from hwgen.model.reference import run_reference
from hwgen.spec.affine import affine
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, parse_workload
from hwgen.spec.typecheck import neutral
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.samples import ROOT
from tests.sampling import examples, tiered

FOLDS = {"+=": np.add, "max=": np.maximum, "min=": np.minimum}


@cache
def chip(name: str) -> HardwareSpec:
    return load_hardware(ROOT / "hw_specs" / f"{name}.yaml")


def scattered(random: Random) -> dict[str, Any]:
    """An update whose indices add up loops at random, and mostly one that reads all of it."""
    loops = {n: random.choice((1, 2, 3, 4, 5)) for n in "ijrsk"[: random.randint(2, 5)]}
    rank, names = random.randint(1, 2), list(loops)
    indices: list[str] = []
    shape: list[int] = []
    for _ in range(rank):
        mine = random.sample(names, random.randint(1, min(3, len(names))))
        steps = [random.choice((1, 1, 2, 3, -1)) for _ in mine]
        low = sum(min(0, s * (loops[n] - 1)) for n, s in zip(mine, steps, strict=True))
        high = sum(max(0, s * (loops[n] - 1)) for n, s in zip(mine, steps, strict=True))
        first = random.choice((0, 0, 1)) - low
        terms = [f"{s}*{n}" for n, s in zip(mine, steps, strict=True)]
        indices.append(" + ".join([*terms, str(first)]))
        shape.append(high + first + random.choice((1, 1, 2)))
    floats = random.random() < 0.3
    op, dtype = random.choice(list(FOLDS)), "float32" if floats else "int32"
    value = " + ".join(
        f"x{k}[{', '.join(random.sample(names, random.randint(1, len(names))))}]" for k in (0, 1)
    )
    tensors: dict[str, str] = {}
    for access in value.split(" + "):
        x, over = access.removesuffix("]").split("[")
        extents = [loops[n] for n in over.split(", ")]
        tensors[x] = f"{dtype if floats else 'int8'}{extents}"
    order = random.sample(names, len(names))
    missing = [n for n in names if n not in " ".join((*indices, value))]
    for name in missing:
        order.remove(name)
    s = f"{dtype}{shape}"
    compute: list[Any] = [
        {"do": f"s[{', '.join(indices)}] {op} {value}", "loops": {n: loops[n] for n in order}}
    ]
    tensors |= {"s": s}
    if random.random() < 0.7:
        out = ["a", "b"][:rank]
        tensors |= {"y": s}
        compute.append(f"y[{', '.join(out)}] = s[{', '.join(out)}] * 2")
    return {"name": "scattered", "tensors": tensors, "compute": compute}


def in_parts(random: Random) -> dict[str, Any]:
    """A tensor that statements write part by part, some again, until all is written."""
    length, width = random.choice((5, 8, 16, 33)), random.choice((1, 3, 8))
    compute: list[Any] = []
    tensors: dict[str, str] = {}
    begin = 0
    while begin < length:
        count = min(length - begin, random.choice((1, 2, 4, 7, 16)))
        first = begin if random.random() < 0.7 else max(0, begin - random.choice((1, 2)))
        count, name = count + begin - first, f"x{len(tensors)}"
        tensors[name] = f"float32[{count}, {width}]"
        value = f"{name}[i, j] + 1.0" if random.random() < 0.5 else f"{name}[i, j]"
        again = random.random() < 0.2 and first < begin
        at = f"i + {first}"
        compute.append({
            "do": f"t[{at}, j] = {value}", "loops": {"i": count, "j": width},
        })  # fmt: skip
        if again:
            doubled = {"i": begin - first, "j": width}
            compute.append({"do": f"t[{at}, j] = t[{at}, j] * 2.0", "loops": doubled})
        begin = first + count
    tensors["t"] = f"float32[{length}, {width}]"
    if random.random() < 0.5:
        tensors["y"] = tensors["t"]
        compute.append("y[i, j] = t[i, j] - 1.0")
    return {"name": "parts", "tensors": tensors, "compute": compute}


def by_loops(workload: Workload, inputs: dict[str, Any]) -> dict[str, npt.NDArray[np.float64]]:
    """What a workload of integer sums and copies gives, element by element, as it is written."""
    held = {n: np.asarray(a, np.float64) for n, a in inputs.items()}
    for tensor in workload.tensors:
        held.setdefault(tensor.name, np.full(tensor.shape, np.nan))
    for s in workload.statements:
        if s.op != "=" and not s.continues:
            first = neutral(s.op, workload.tensor[s.target.tensor].dtype)
            held[s.target.tensor][...] = first.value
        for point in product(*(range(e) for _, e in s.loops)):
            at = dict(zip((n for n, _ in s.loops), point, strict=True))

            def element(access: Any, at: dict[str, int] = at) -> tuple[int, ...]:
                forms = [affine(i) for i in access.indices]
                return tuple(f.at(at) for f in forms if f is not None)

            value = _value(s.value, held, element)
            where = element(s.target)
            known = held[s.target.tensor]
            known[where] = value if s.op == "=" else FOLDS[s.op](known[where], value)
    return {t.name: held[t.name] for t in workload.outputs}


def _value(expr: Any, held: dict[str, npt.NDArray[np.float64]], element: Any) -> float:
    from hwgen.spec.expression import Access, Binary, Const

    match expr:
        case Const(value):
            return float(value)
        case Access(tensor, _):
            return float(held[tensor][element(expr)])
        case Binary(op, left, right):
            a, b = (_value(e, held, element) for e in (left, right))
            return {"+": a + b, "-": a - b, "*": a * b}[op]
        case _:
            raise AssertionError(str(expr))


def workload(seed: int) -> Workload:
    random = Random(seed)
    return parse_workload(random.choice((scattered, in_parts))(random))


@pytest.mark.parametrize("seed", range(examples(150)))
def test_the_reference_does_what_is_written(seed: int) -> None:
    given = workload(seed)
    inputs = draw_inputs(given, seed)
    wanted, found = by_loops(given, inputs), run_reference(given, inputs)
    for name, array in found.items():
        if array.dtype.kind == "f":
            assert np.allclose(np.asarray(array, np.float64), wanted[name], 1e-5, 1e-5)
        else:
            assert np.array_equal(array, wanted[name].astype(np.int64).astype(array.dtype))


@pytest.mark.parametrize("seed", tiered([*range(examples(60))], [*range(8)]))
def test_kernels_do_what_the_reference_does(seed: int) -> None:
    given = workload(seed)
    for name in ("cpu_generic", "cuda_generic", "vta", "x86_avx2", "gemmini")[seed % 2 :: 2]:
        kernel = hwgen.build(given, chip(name))
        examine(kernel.compilation, draw_inputs(given, seed), "both" if seed % 8 == 0 else "python")


@pytest.mark.parametrize("seed", range(examples(60)))
def test_elements_that_nothing_writes_are_found(seed: int) -> None:
    """Without one of the statements some element may be missing: exactly then it is refused."""
    random, data = Random(seed), dict[str, Any]()
    while sum(isinstance(c, dict) for c in data.get("compute", ())) < 2:
        data = in_parts(random)
    del data["compute"][random.randrange(sum(isinstance(c, dict) for c in data["compute"]))]
    used = " ".join(c if isinstance(c, str) else c["do"] for c in data["compute"])
    data["tensors"] = {n: t for n, t in data["tensors"].items() if f"{n}[" in used}

    def outcome() -> str:
        try:
            made = hwgen.build(parse_workload(data), chip("cpu_generic")).compilation
        except HwgenError as error:
            return error.code
        examine(made, draw_inputs(made.workload, seed))
        return "right"

    found = outcome()
    if found not in ("H222", "H225"):
        assert found == "right"
    try:
        given = parse_workload(data)
    except HwgenError:
        return  # An element that is read before anything is written.
    whole = not any(np.isnan(a).any() for a in by_loops(given, draw_inputs(given, seed)).values())
    assert whole == (found == "right")
