"""Workloads of the forms that a chip with a multiplication is likely to run, in its data types."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hwgen.verify.natural.draws import Choose, Pick, Spec

EXTENTS = (1, 2, 5, 16, 17, 40, 70)
"""Around the extents of lanes."""

_GEMM: Spec = {
    "sizes": {"M": 1, "N": 1, "K": 1},
    "tensors": {"a": "{T}[M, K]", "b": "{T}[N, K]", "s": "{W}[M, N]", "y": "{T}[M, N]"},
    "compute": ["s[m, n] += a[m, k] * b[n, k]", "y[m, n] = {C}(s[m, n])"],
}
_WIDE: Spec = {
    "sizes": {"M": 1, "N": 1, "K": 1},
    "tensors": {"a": "{T}[M, K]", "b": "{T}[K, N]", "y": "{W}[M, N]"},
    "compute": ["y[m, n] += a[m, k] * b[k, n]"],
}
_BIASED: Spec = _GEMM | {
    "tensors": _GEMM["tensors"] | {"c": "{W}[N]"},
    "compute": [_GEMM["compute"][0], "y[m, n] = {C}(max(s[m, n] + c[n], 0))"],
}
_STARTED: Spec = _BIASED | {
    "compute": [_GEMM["compute"][0], "y[m, n] = {C}(s[m, n] + c[n])"],
}
_ADD: Spec = {
    "sizes": {"M": 1, "N": 1},
    "tensors": {"a": "{T}[M, N]", "b": "{T}[M, N]", "y": "{T}[M, N]"},
    "compute": ["y[m, n] = {C}(a[m, n] + b[m, n])"],
}
_BROADCAST: Spec = _ADD | {
    "tensors": {"a": "{T}[M, N]", "b": "{T}[N]", "y": "{T}[M, N]"},
    "compute": ["y[m, n] = {C}(max(b[n], a[m, n]) + b[n])"],
}
_CONVOLUTION: Spec = {
    "sizes": {"M": 1, "N": 1, "K": 1},
    "tensors": {
        "x": "{T}[K, M + 2]", "w": "{T}[N, K, 3]", "p": "{T}[K, M + 4]", "s": "{W}[N, M + 2]",
        "y": "{T}[N, M + 2]",
    },
    "compute": [
        "p[k, h] = select(h >= 1 and h < M + 3, x[k, h - 1], 0)",
        "s[n, i] += p[k, i + r] * w[n, k, r]",
        "y[n, i] = {C}(s[n, i])",
    ],
}  # fmt: skip
_ROWS: Spec = {
    "sizes": {"M": 1, "K": 1},
    "tensors": {"a": "{T}[M, K]", "s": "{W}[M]", "y": "{T}[M]"},
    "compute": ["s[m] += max(a[m, k], 0)", "y[m] = {C}(s[m])"],
}

_SATURATING: Spec = _GEMM | {
    "compute": [
        "s[m, n] = 0", "s[m, n] = clip(s[m, n] + a[m, k] * b[n, k], -{most}, {most})",
        _GEMM["compute"][1],
    ],
}  # fmt: skip
_SATURATES = re.compile(r"(\w+\[[^\]]*\]) = clip\(\1 \+ [^+]*, -(\d+), \2\)")
"""A product that is added in order, and its bound."""


def workload_for(spec: Spec, choose: Choose) -> Spec:
    """A workload in the chip's data types: the narrowest and the widest of its memories'."""
    pick = Pick(choose)
    held = {m["dtype"] for m in spec["memories"].values() if "dtype" in m}
    narrow, wide = "float32", "float32"
    if not any("float" in dtype for dtype in held):
        narrow, wide = ("int16" if "int16" in held else "int8"), "int32"
    forms = [_GEMM, _STARTED, _CONVOLUTION]
    if computes_elements(spec):
        forms += [_BIASED, _ADD, _BROADCAST, _ROWS]
    stored = {
        operand.get("dtype")
        for intrinsic in spec["intrinsics"].values()
        for name, operand in intrinsic["operands"].items()
        if str(intrinsic["semantics"]).startswith(f"{name}[")
    }
    if wide in stored:
        forms += [_WIDE, _WIDE]
    bounds = [s[2] for i in spec["intrinsics"].values()
              if (s := _SATURATES.fullmatch(str(i["semantics"])))]  # fmt: skip
    base = _SATURATING if bounds and not pick.chance(8) else pick(forms)
    types = {"{T}": narrow, "{W}": wide, "{most}": pick(bounds) if bounds else ""}
    cast = "{S}" if narrow == wide else f"{narrow}({{S}})"
    result = pick(sorted(_stored(spec, wide, narrow)) or [cast])
    for imm in re.findall(r"\{(int|float)\}", result):
        constant = pick((0.5, 0.03125, 1.0)) if imm == "float" else pick((2, 1, 0, 7))
        result = result.replace(f"{{{imm}}}", str(constant), 1)

    def typed(text: str) -> str:
        for mark, dtype in types.items():
            text = text.replace(mark, dtype)
        target, assigned, value = text.partition(" = {C}")
        return f"{target} = {result.replace('{S}', value)}" if assigned else text

    return {
        "name": "drawn",
        "sizes": {n: pick(EXTENTS) for n in base["sizes"]},
        "tensors": {n: typed(t) for n, t in base["tensors"].items()},
        "compute": [typed(c) for c in base["compute"]],
    }


def _stored(spec: Spec, wide: str, narrow: str) -> Iterator[str]:
    """What the chip's stores make of a sum `{S}`; `{int}` and `{float}` stand for constants."""
    for intrinsic in spec["intrinsics"].values():
        found = re.fullmatch(r"(\w+)\[[^\]]*\] = (.*)", str(intrinsic["semantics"]))
        if found is None or intrinsic["operands"][found[1]].get("dtype") != narrow:
            continue
        read = [n for n in intrinsic["operands"] if n != found[1]]
        held = [spec["memories"][intrinsic["operands"][n]["memory"]].get("dtype") for n in read]
        if held != [wide]:
            continue
        text = re.sub(rf"\b{read[0]}\[[^\]]*\]", "{S}", found[2])
        for name, field in intrinsic.get("immediates", {}).items():
            kind = "float" if "float" in field["dtype"] else "int"
            text = re.sub(rf"\b{name}\b", f"{{{kind}}}", text)
        yield text


def computes_elements(spec: Spec) -> bool:
    """Whether anything on the chip is computed besides sums of products."""
    offchip = {name for name, m in spec["memories"].items() if m["kind"] == "offchip"}
    return any(
        len(intrinsic["operands"]) > 1
        and "+=" not in str(intrinsic["semantics"])
        and not _SATURATES.fullmatch(str(intrinsic["semantics"]))
        and offchip.isdisjoint(o["memory"] for o in intrinsic["operands"].values())
        for intrinsic in spec["intrinsics"].values()
    )
