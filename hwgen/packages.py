"""Packages that only some models and options need, imported when one does."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from hwgen.errors import HwgenError


def needed(module: str, does: str, extra: str) -> Any:
    """A module of a package that hwgen does not bring along. `does`: what hwgen needs it for, as
    "reads ONNX models"; `extra`: of hwgen's extras, the one with it.

    Raises:
        HwgenError: H046 where it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0].replace("_", "-")  # As registries write it.
        raise HwgenError(
            "H046",
            f"the package that {does} is not installed",
            found=f"no {package}",
            allowed=f"{package}, which hwgen[{extra}] brings along",
            repair=f"pip install 'hwgen[{extra}]'",
        ) from error
