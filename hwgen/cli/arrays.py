"""Arrays that the command line names: `TENSOR=FILE.npy`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hwgen.errors import HwgenError, Location
from hwgen.model.numeric import STORAGE, Array
from hwgen.spec.find import nearest
from hwgen.spec.regular_file import check_regular
from hwgen.spec.workload import Tensor, Workload


def read_inputs(texts: Sequence[str], workload: Workload) -> dict[str, Array]:
    """The arrays of `--input TENSOR=FILE.npy`.

    Raises:
        HwgenError: H008 where a text, a file or an array does not fit the workload.
    """
    return _arrays("--input", texts, workload.name, "input", workload.inputs)


def read_weights(texts: Sequence[str], workload: Workload) -> dict[str, Array]:
    """The arrays of `--weights TENSOR=FILE.npy`, of constant inputs alone.

    Raises:
        HwgenError: H008 where a text, a file or an array does not fit the workload.
    """
    constants = [t for t in workload.inputs if t.constant]
    return _arrays("--weights", texts, workload.name, "constant input", constants)


def _arrays(
    option: str, texts: Sequence[str], workload: str, kind: str, tensors: Sequence[Tensor]
) -> dict[str, Array]:
    declared = {t.name: t for t in tensors}
    found: dict[str, Array] = {}
    for text in texts:
        name, equals, file = text.partition("=")
        if not equals or not name or not file:
            raise HwgenError(
                "H008", f"{option} needs a tensor and a file", found=text, allowed="TENSOR=FILE.npy"
            )
        if name not in declared:
            close = nearest(name, declared)
            raise HwgenError(
                "H008",
                f"{workload} has no {kind} {name}",
                found=f"{option} {text}",
                allowed=", ".join(declared) or f"no {kind}s",
                repair=f"did you mean {close}={file}?" if close else "",
            )
        if name in found:
            raise HwgenError("H008", f"{option} gives {name} twice", found=f"{option} {text}")
        found[name] = _read(Path(file), declared[name])
    return found


def _read(path: Path, tensor: Tensor) -> Array:
    allowed = f"{tensor.dtype}{list(tensor.extents)} as NumPy's save() writes it"
    try:
        check_regular(path, path.stat().st_mode)  # Opening a pipe would wait for its other end.
        # Mapped, so that a header that promises too much costs nothing.
        array: Array = np.lib.format.open_memmap(path, mode="r")
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise HwgenError(
            "H008", f"cannot read the array: {reason}", location=Location(str(path))
        ) from error
    except (ValueError, EOFError, MemoryError, OverflowError, SyntaxError) as error:
        raise HwgenError(
            "H008",
            f"not a .npy file that can be read for {tensor.name}",
            location=Location(str(path)),
            found=" ".join(str(error).split())[:120],
            allowed=allowed,
        ) from error
    if array.shape != tensor.extents or array.dtype != STORAGE[tensor.dtype]:
        raise HwgenError(
            "H008",
            f"the array does not fit input {tensor.name}",
            location=Location(str(path)),
            found=f"{array.dtype}{list(array.shape)}",
            allowed=allowed,
            repair="convert it, or set the sizes with --set",
        )
    return np.reshape(np.ascontiguousarray(array), tensor.shape)
