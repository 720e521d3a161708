"""Data types by name in a workload: what its file says, and what is set in their place."""

from __future__ import annotations

from collections.abc import Mapping

from hwgen.errors import HwgenError
from hwgen.spec.context import Context, Types
from hwgen.spec.expression import DTYPES, FUNCTIONS
from hwgen.spec.source import FieldPath
from hwgen.spec.suggest import suggestion
from hwgen.spec.workload_schema import WorkloadSchema


def resolve_types(schema: WorkloadSchema, context: Context, overrides: Mapping[str, str]) -> Types:
    """The named types, each a data type; and those of tensors, set from outside.

    Raises:
        HwgenError: H204 a name that is taken, H227 nothing of that name to set, H228 no data type.
    """
    for name, dtype in overrides.items():
        if name not in schema.dtypes and name not in schema.tensors:
            known = [*schema.dtypes, *schema.tensors]
            raise context.error(
                "H227", f"the workload has neither a data type nor a tensor {name!r}",
                ("dtypes",) if schema.dtypes else ("tensors",), key=True, found=f"{name}={dtype}",
                allowed=", ".join(known), repair=suggestion(name, known) or "name one of these",
            )  # fmt: skip
        if dtype not in DTYPES:
            section = "dtypes" if name in schema.dtypes else "tensors"
            raise _unknown(context, (section, name), f"{name}={dtype}", dtype, list(DTYPES))
    named: dict[str, str] = {}
    for name, text in schema.dtypes.items():
        path: FieldPath = ("dtypes", name)
        taken = _taken(schema, name)
        if taken:
            raise context.error(
                "H204", f"{name!r} is {taken} and cannot name a data type", path, key=True,
                found=name, allowed="any other name", repair=f"call it {name}_ or {name}0",
            )  # fmt: skip
        given = overrides.get(name, text)
        if given not in DTYPES and given not in named:
            raise _unknown(context, path, given, given, [*DTYPES, *named])
        named[name] = named.get(given, given)
    return Types(
        tuple(named.items()), tuple((n, d) for n, d in overrides.items() if n in schema.tensors),
        tuple(overrides.items()),
    )  # fmt: skip


def changed_types(schema: WorkloadSchema, types: Types) -> tuple[tuple[str, str], ...]:
    """What was set to another type than the file has, by name."""
    own = dict(types.named)
    written = dict(schema.dtypes)
    for name, tensor in schema.tensors.items():
        text = tensor if isinstance(tensor, str) else tensor.type
        written[name] = text.partition("[")[0].strip()
    return tuple((n, d) for n, d in types.given if own.get(written[n], written[n]) != d)


def _taken(schema: WorkloadSchema, name: str) -> str:
    """What has the name already, or nothing."""
    if name in DTYPES or name in FUNCTIONS or name in ("and", "or", "not", "inf"):
        return "a word of the expression language"
    if name in schema.sizes:
        return "a size"
    return "a tensor" if name in schema.tensors else ""


def _unknown(
    context: Context, path: FieldPath, found: str, dtype: str, known: list[str]
) -> HwgenError:
    return context.error(
        "H228", f"no data type is called {dtype!r}", path, found=found, allowed=", ".join(known),
        repair=suggestion(dtype, known) or "name one of these",
    )  # fmt: skip
