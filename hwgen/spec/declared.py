"""Intrinsics declared in Python: what a chip's file would say of them, added as it is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from hwgen.errors import HwgenError
from hwgen.spec.source import Data, Document, from_python


class DeclaredIntrinsic(str):
    """The name of an intrinsic, and what a chip's file would say of it."""

    __slots__ = ("definitions", "fields", "includes")
    fields: Mapping[str, object]
    definitions: str
    includes: tuple[str, ...]


def intrinsic(
    name: str,
    *,
    semantics: str | Sequence[str],
    operands: Mapping[str, Mapping[str, object]],
    emit: str,
    iterators: Mapping[str, int | str] | None = None,
    cycles: int | str = 1,
    definitions: str = "",
    includes: Sequence[str] = (),
    **fields: object,
) -> DeclaredIntrinsic:
    """An intrinsic for `load_hardware(..., intrinsics=[...])`; as a text it is its name, as
    `Schedule.tensorize` takes it.

    Every argument reads as the field of its name in a chip's file, `fields` those that are not
    listed; `definitions` and `includes` are added to the ones of the chip's `code`. Nothing is
    checked before a chip is read with it.
    """
    made = DeclaredIntrinsic(name)
    given = {"iterators": iterators, "semantics": semantics, "operands": operands}
    made.fields = {k: v for k, v in given.items() if v is not None}
    made.fields |= {"cycles": cycles, "emit": emit, **fields}
    made.definitions, made.includes = definitions, tuple(includes)
    return made


def with_intrinsics(document: Document, intrinsics: Sequence[DeclaredIntrinsic]) -> Document:
    """A chip's document with what Python declares.

    Raises:
        HwgenError: H011 a name that the chip has already.
    """
    if not isinstance(document.data, dict):
        return document
    data = dict(document.data)
    if any(not isinstance(data.get(name, {}), dict) for name in ("intrinsics", "code")):
        return document  # The reader refuses it.
    for one in intrinsics:
        known, code = _section(data, "intrinsics"), _section(data, "code")
        if str(one) in known:
            raise HwgenError(
                "H011",
                f"the chip has an intrinsic {one} already",
                location=document.locate(("intrinsics", str(one)), key=True),
                field=f"intrinsics.{one}",
                found="one in the file, and one declared in Python",
                allowed="names that differ",
                repair="another name: it is the first argument",
            )
        known[str(one)] = from_python(one.fields, document.file).data
        before, already = code.get("definitions", ""), code.get("includes", [])
        if one.definitions and isinstance(before, str):
            code["definitions"] = before + one.definitions
        if one.includes and isinstance(already, list):
            code["includes"] = [*already, *one.includes]
        data["intrinsics"] = known
        if code:
            data["code"] = code
    return replace(document, data=data)


def _section(data: Mapping[str, Data], name: str) -> dict[str, Data]:
    """A copy of a mapping of the document; empty where there is none."""
    found = data.get(name)
    return dict(cast("dict[str, Data]", found)) if isinstance(found, dict) else {}
