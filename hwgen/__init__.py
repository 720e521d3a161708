"""hwgen: one YAML file describes an accelerator; verified C kernels come out.

The names below load on first use, so that `import hwgen` stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hwgen.errors import HwgenError
    from hwgen.exploration.run import explore
    from hwgen.kernel import Kernel, build
    from hwgen.network.compiled import Network
    from hwgen.network.compiled import compile_model as compile  # noqa: A004
    from hwgen.passes.nest_pipeline import compile_nest
    from hwgen.passes.scripting import compile_schedule
    from hwgen.pipeline import compile_kernel
    from hwgen.polyhedral.schedule.schedule import Schedule
    from hwgen.spec.declared import intrinsic
    from hwgen.spec.hardware import HardwareSpec as Hardware
    from hwgen.spec.load import load_hardware, load_workload
    from hwgen.spec.load import make_workload as workload
    from hwgen.spec.workload import Workload

__version__ = "0.1.0"

__all__ = [
    "Hardware",
    "HwgenError",
    "Kernel",
    "Network",
    "Schedule",
    "Workload",
    "build",
    "compile",
    "compile_kernel",
    "compile_nest",
    "compile_schedule",
    "explore",
    "intrinsic",
    "load_hardware",
    "load_workload",
    "workload",
]

_HOMES = {
    "Hardware": ("hwgen.spec.hardware", "HardwareSpec"),
    "HwgenError": ("hwgen.errors", "HwgenError"),
    "Kernel": ("hwgen.kernel", "Kernel"),
    "Network": ("hwgen.network.compiled", "Network"),
    "Schedule": ("hwgen.polyhedral.schedule.schedule", "Schedule"),
    "Workload": ("hwgen.spec.workload", "Workload"),
    "build": ("hwgen.kernel", "build"),
    "compile": ("hwgen.network.compiled", "compile_model"),
    "compile_kernel": ("hwgen.pipeline", "compile_kernel"),
    "compile_nest": ("hwgen.passes.nest_pipeline", "compile_nest"),
    "compile_schedule": ("hwgen.passes.scripting", "compile_schedule"),
    "explore": ("hwgen.exploration.run", "explore"),
    "intrinsic": ("hwgen.spec.declared", "intrinsic"),
    "load_hardware": ("hwgen.spec.load", "load_hardware"),
    "load_workload": ("hwgen.spec.load", "load_workload"),
    "workload": ("hwgen.spec.load", "make_workload"),
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'hwgen' has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _HOMES[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
