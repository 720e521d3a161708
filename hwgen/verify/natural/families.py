"""Random workloads as people write them: products, windows, sums, normalisations and what follows.

Unlike `chips/workloads.py`, which looks for what breaks, this draws what a chip's user would ask
for, in the chip's own kinds of numbers, and keeps count of what is unusual about it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from hwgen.verify.natural.draft import EXTENTS, REDUCED, SPATIAL, Draft, Numbers
from hwgen.verify.natural.draws import Pick, Spec

UPDATES = ("+=", "+=", "max=", "min=")


@dataclass(frozen=True, slots=True)
class Natural:
    """A workload as plain data. `family`: what it computes; `unusual`: what is special about it."""

    family: str
    unusual: tuple[str, ...]
    data: Spec

    @property
    def rank(self) -> tuple[int, int, str]:
        """Smaller for what is more natural."""
        text = "; ".join(statement["do"] for statement in self.data["compute"])
        return len(self.unusual), len(text), text


def natural_workload(seed: int, numbers: Sequence[Numbers]) -> Natural:
    """The workload of a seed, which alone decides it."""
    pick = Pick(Random(seed).choice)
    draft = Draft(pick, pick(numbers))
    family = pick(tuple(FAMILIES) if draft.numbers.floats else tuple(FAMILIES)[:-1])
    FAMILIES[family](draft)
    return Natural(family, tuple(draft.unusual), draft.data(seed))


def _product(d: Draft) -> None:
    """Matrix products, with vectors and batches too, and what follows."""
    spatial, (depth,) = d.loops(SPATIAL[:3]), d.loops(REDUCED[:1])
    batch = spatial[:1] if len(spatial) > 2 else []
    weights = [spatial[-1], depth]
    if d.pick.chance(2):
        weights.reverse()
    first = d.factor([*spatial[:-1], depth])
    second = d.factor([*batch, *weights], constant=not batch)
    d.output(d.write("s", d.numbers.wide, spatial, "+=", f"{first} * {second}"), spatial)


def _window(d: Draft) -> None:
    """Convolutions of one or two dimensions, deep or by channel, padded or not."""
    rows = d.loops(("h", "w"))
    taps = ["u", "v"][: len(rows)]
    stride = 2 if d.rarely("stride", 4) else 1
    by_channel = d.rarely("by channel", 5)
    d.extents |= {"c": d.pick((16, 8, 3, 17)), "o": d.pick((16, 32, 5)), **dict.fromkeys(taps, 3)}
    out = "c" if by_channel else "o"
    image = d.new("x", d.numbers.narrow)
    d.shape[image] = [d.extents["c"], *(stride * (d.extents[n] - 1) + 3 for n in rows)]
    if d.pick.chance(2):
        image = _padded(d, image)
    step = f"{stride}*" if stride > 1 else ""
    at = [f"{step}{n} + {tap}" for n, tap in zip(rows, taps, strict=True)]
    kernel = d.factor([*([] if by_channel else ["o"]), "c", *taps], constant=True)
    pixel = d.widened(f"{image}[{', '.join(['c', *at])}]")
    d.output(d.write("s", d.numbers.wide, [out, *rows], "+=", f"{pixel} * {kernel}"), [out, *rows])


def _transposed(d: Draft) -> None:
    """Transposed convolutions: each input adds to several outputs, which others add to too."""
    rows = d.loops(("h", "w"))
    taps = ["u", "v"][: len(rows)]
    stride = d.pick((2, 1, 3))
    d.extents |= {"c": d.pick((8, 1, 3)), "o": d.pick((16, 5))}
    d.extents |= dict.fromkeys(taps, d.pick((3, 2)))
    pixel = d.factor(["c", *rows])
    kernel = d.factor(["o", "c", *taps], constant=True)
    at = [f"{stride}*{n} + {tap}" for n, tap in zip(rows, taps, strict=True)]
    total = d.new("s", d.numbers.wide)
    d.shape[total] = [
        d.extents["o"],
        *(stride * (d.extents[n] - 1) + d.extents[t] for n, t in zip(rows, taps, strict=True)),
    ]
    d.compute.append(
        {
            "do": f"{total}[{', '.join(['o', *at])}] += {pixel} * {kernel}",
            "loops": {n: d.extents[n] for n in ("o", *rows, *taps, "c")},
        }
    )
    out = ["o", "p", "q"][: len(d.shape[total])]
    d.extents |= dict(zip(out, d.shape[total], strict=True))
    d.output(f"{total}[{', '.join(out)}]", out)


def _parts(d: Draft) -> None:
    """Parts of one tensor, side by side or over each other, each made from inputs of its own."""
    spatial = d.loops(SPATIAL[:2])
    *outer, last = spatial
    name, begin, end = d.new("y", d.numbers.narrow), 0, 0
    for _ in range(d.pick((2, 3))):
        d.extents[last] = d.pick(EXTENTS[:6])
        value = d.step(d.read(spatial), spatial, d.numbers.narrow)
        value = value if d.numbers.floats else f"{d.numbers.narrow}({value})"
        at = f"{last} + {begin}" if begin else last
        d.compute.append(
            {
                "do": f"{name}[{', '.join([*outer, at])}] = {value}",
                "loops": {n: d.extents[n] for n in spatial},
            }
        )
        end = max(end, begin + d.extents[last])
        begin = end - 1 if d.rarely("overlap", 4) else end
    d.shape[name] = [*(d.extents[n] for n in outer), end]


def _total(d: Draft) -> None:
    """All of a tensor put together into one number, and what is made with that."""
    loops = d.loops(SPATIAL[:2])
    value, op = d.read(loops), d.pick(UPDATES)
    wide = d.numbers.wide if op == "+=" or not d.numbers.floats else d.numbers.narrow
    total = d.write("s", wide, [], op, d.widened(value) if wide == d.numbers.wide else value)
    if d.pick.chance(2):
        d.output(total, [])
        return
    near = d.widened(value) if wide == d.numbers.wide else value
    d.output(f"({near} - {total})", loops)


def _padded(d: Draft, image: str) -> str:
    """A copy with a border of zeros; the image becomes the part inside."""
    channels, *whole = d.shape[image]
    inner = [max(1, extent - 2) for extent in whole]
    d.shape[image] = [channels, *inner]
    loops = ["d", "e", "f"][: len(inner) + 1]
    view = d.new("p", d.numbers.narrow)
    d.shape[view] = [channels, *whole]
    guard = " and ".join(
        f"{n} >= 1 and {n} < {extent + 1}" for n, extent in zip(loops[1:], inner, strict=True)
    )
    at = ", ".join([loops[0], *(f"{n} - 1" for n in loops[1:])])
    d.compute.append(
        {
            "do": f"{view}[{', '.join(loops)}] = select({guard}, {image}[{at}], 0)",
            "loops": dict(zip(loops, [channels, *whole], strict=True)),
        }
    )
    return view


def _elementwise(d: Draft) -> None:
    """One to three statements of one to four operations each, over one to four loops."""
    spatial = d.loops(SPATIAL)
    value, dtype = d.read(spatial), d.numbers.narrow
    for _ in range(d.pick((0, 0, 1, 2))):
        if not d.numbers.floats:
            dtype = d.numbers.wide
        value = d.write("t", dtype, spatial, "=", d.steps(value, spatial, dtype))
    if d.numbers.floats:
        d.write("y", d.numbers.narrow, spatial, "=", d.step(value, spatial, d.numbers.narrow))
        return
    d.output(d.step(value, spatial, d.numbers.narrow), spatial)


def _reduction(d: Draft) -> None:
    """Sums and extremes over one or two loops, of inputs or of what is computed from them."""
    spatial, reduced = d.loops(SPATIAL[:2]), d.loops(REDUCED)
    value = d.read([*spatial, *reduced])
    if d.rarely("computed", 4):
        value = d.step(value, spatial, d.numbers.narrow)
    op = d.pick(UPDATES)
    wide = d.numbers.wide if op == "+=" or not d.numbers.floats else d.numbers.narrow
    value = d.widened(value) if wide == d.numbers.wide else value
    total = d.write("s", wide, spatial, op, value)
    if d.rarely("two outputs", 5):
        d.output(total, spatial, 0)
    d.output(total, spatial)


def _chain(d: Draft) -> None:
    """Two products, one after the other, with something between."""
    rows, hidden, columns = d.loops(SPATIAL[:3], 3)
    (depth,) = d.loops(REDUCED[:1])
    n = d.numbers
    first = f"{d.factor([rows, depth])} * {d.factor([hidden, depth], constant=True)}"
    total = d.write("s", n.wide, [rows, hidden], "+=", first)
    value = d.narrowed(d.steps(total, [rows, hidden], n.wide))
    between = d.write("h", n.out, [rows, hidden], "=", value)
    second = f"{d.widened(between)} * {d.factor([columns, hidden], constant=True)}"
    d.output(d.write("s", n.wide, [rows, columns], "+=", second), [rows, columns])


def _normalised(d: Draft) -> None:
    """Softmax, or rows divided by a sum or by the root of their squares' sum."""
    rows, columns = d.loops(SPATIAL[:2], 2)
    dtype = d.numbers.narrow
    x = d.read([rows, columns])
    kind = d.pick(("softmax", "mean", "square"))
    if kind == "softmax":
        top = d.write("m", dtype, [rows], "max=", x)
        e = d.write("e", dtype, [rows, columns], "=", f"exp({x} - {top})")
        total = d.write("s", d.numbers.wide, [rows], "+=", d.widened(e))
        below = total if d.numbers.wide == dtype else f"{dtype}({total})"
        d.write("y", dtype, [rows, columns], "=", f"{e} / {below}")
        return
    term = d.widened(x) if kind == "mean" else f"{d.widened(x)} * {d.widened(x)}"
    total = d.write("s", d.numbers.wide, [rows], "+=", term)
    share = 1.0 / d.extents[columns]
    scale = f"{total} * {share}" if kind == "mean" else f"rsqrt({total} * {share} + 0.00001)"
    held = d.write(
        "r", dtype, [rows], "=", scale if d.numbers.wide == dtype else f"{dtype}({scale})"
    )
    value = f"{x} - {held}" if kind == "mean" else f"{x} * {held}"
    d.write("y", dtype, [rows, columns], "=", d.steps(f"({value})", [rows, columns], dtype))


FAMILIES: dict[str, Callable[[Draft], None]] = {
    "product": _product,
    "convolution": _window,
    "elementwise": _elementwise,
    "reduction": _reduction,
    "total": _total,
    "transposed convolution": _transposed,
    "parts": _parts,
    "two products": _chain,
    "normalisation": _normalised,
}
"""What people compute; the last one in floats only."""
