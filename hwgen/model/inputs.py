"""What a kernel is called with: arrays of any library, bound to its inputs and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np

from hwgen.errors import HwgenError
from hwgen.model.numeric import STORAGE, Array
from hwgen.spec.find import nearest
from hwgen.spec.workload import Tensor, Workload

_PROTOCOLS: tuple[tuple[str, Callable[..., Array]], ...] = (
    ("__dlpack__", np.from_dlpack),
    ("__array__", np.asarray),
)


def bind_inputs(
    workload: Workload, places: Sequence[object], named: Mapping[str, object]
) -> dict[str, Array]:
    """An array for every input: first those by place, in the workload's order, then by name. They
    are contiguous and aligned, and copies only where those given are not.

    Raises:
        HwgenError: H051 too many, too few, unknown, or one twice; H052 what is no array; H053
            another data type or shape.
    """
    names = [t.name for t in workload.inputs]
    given = dict(zip(names, places, strict=False))
    unknown = next((n for n in named if n not in names), "")
    twice = next((n for n in named if n in given), "")
    missing = [n for n in names if n not in given and n not in named]
    if len(places) > len(names):
        raise _refused(workload, "more arrays than inputs", f"{len(places)} arrays", _call(names))
    if unknown:
        close = nearest(unknown, [n for n in names if n not in given])
        repair = f"did you mean {close}?" if close else _call(names)
        raise _refused(workload, f"there is no input {unknown}", unknown, repair)
    if twice:
        found = f"{twice} by its place and by its name"
        raise _refused(workload, f"input {twice} is given twice", found, "leave one of them out")
    if missing:
        found = ", ".join([*given, *named]) or "nothing"
        lacking = f"input{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
        verb = "are" if len(missing) > 1 else "is"
        raise _refused(workload, f"{lacking} {verb} missing", found, _call(names))
    given |= named
    return {t.name: _fitting(t, given[t.name], workload) for t in workload.inputs}


def _refused(workload: Workload, message: str, found: str, repair: str) -> HwgenError:
    return HwgenError(
        "H051",
        f"{workload.name} is called wrongly: {message}",
        found=found,
        allowed=", ".join(f"{t.name}: {_type(t)}" for t in workload.inputs) or "no inputs",
        repair=repair,
    )


def _call(names: Sequence[str]) -> str:
    return f"kernel({', '.join(names)})"


def _type(tensor: Tensor) -> str:
    return f"{STORAGE[tensor.dtype]}{list(tensor.extents)}"


def _fitting(tensor: Tensor, given: object, workload: Workload) -> Array:
    array = _array(tensor, given)
    kind = STORAGE[tensor.dtype]
    if array.dtype != kind or array.shape != tensor.extents:
        raise HwgenError(
            "H053",
            f"input {tensor.name} has another data type or shape",
            location=tensor.location,
            field=tensor.name,
            found=f"{array.dtype}{list(array.shape)}",
            allowed=_type(tensor) + ", the 16 bits of bfloat16" * (tensor.dtype == "bfloat16"),
            repair=_repair(tensor, array, workload),
        )
    if array.shape == tensor.shape and array.flags.c_contiguous and array.flags.aligned:
        return array
    # C reads elements at their own alignment, which views of bytes may not have.
    return np.require(np.reshape(array, tensor.shape), requirements=("C", "A"))


def _repair(tensor: Tensor, array: Array, workload: Workload) -> str:
    name, kind = tensor.name, STORAGE[tensor.dtype]
    if array.shape == tensor.extents:
        return f"{name}.astype(numpy.{kind}), where its values fit"
    if array.dtype != kind:
        return f"convert {name} to {_type(tensor)}"
    if array.shape == tensor.extents[::-1]:
        return f"{name}.T"
    if array.size == np.prod(tensor.shape):
        return f"{name}.reshape({', '.join(map(str, tensor.extents)) or '()'})"
    return _other_sizes(tensor, array, workload)


def _other_sizes(tensor: Tensor, array: Array, workload: Workload) -> str:
    """The sizes of a kernel that takes the array, where extents tell which they are."""
    changed: dict[str, int] = {}
    for mine, theirs in zip(tensor.shape, array.shape, strict=False):
        names = [n for n, v in workload.sizes if v == mine]
        if mine != theirs and len(names) == 1:
            changed[names[0]] = theirs
    sizes = ", ".join(f'"{n}": {v}' for n, v in changed.items())
    return f"a kernel for other sizes: hwgen.build(..., sizes={{{sizes or '...'}}})"


def _array(tensor: Tensor, given: object) -> Array:
    """An object as an array, by the first protocol of its own that works."""
    masked = isinstance(given, np.ma.MaskedArray)
    if isinstance(given, np.ndarray) and not masked:
        return np.asarray(cast("Array", given))
    found = type(cast("object", given)).__name__ + ", whose mask would be lost" * masked
    for protocol, read in _PROTOCOLS:
        if masked or not hasattr(given, protocol):
            continue
        try:
            return read(given)
        except Exception as error:  # Another library's code: whatever it raises is its answer.
            found = f"{type(given).__name__}: {' '.join(str(error).split())[:200]}"
    raise HwgenError(
        "H052",
        f"input {tensor.name} is no array that can be read",
        location=tensor.location,
        field=tensor.name,
        found=found,
        allowed="NumPy arrays, and what has __dlpack__ or __array__, in the host's memory",
        repair=f"numpy.asarray({tensor.name}, numpy.{STORAGE[tensor.dtype]})",
    )
