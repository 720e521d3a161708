"""Pydantic at the boundary: shared field types, and its errors as coded errors.

H030 missing field, H031 unknown field, H032 wrong type, H033 value not among the allowed,
H034 a name that cannot be used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Annotated, TypeVar, cast, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from hwgen.errors import HwgenError
from hwgen.spec.field_repairs import of_name, of_unknown_field, of_wrong_type
from hwgen.spec.findings import ConsequenceError, Findings
from hwgen.spec.source import Data, Document, FieldPath, Key, field_text
from hwgen.spec.suggest import suggestion

NAME_PATTERN = r"^[A-Za-z][A-Za-z0-9_]{0,63}$"
LOOP_NAME_PATTERN = r"^[A-Za-z][A-Za-z0-9_]{0,63}(\.[A-Za-z][A-Za-z0-9_]{0,63})?$"
NAME_RULE = "a letter, then letters, digits or _ (at most 64 characters)"
LOOP_NAME_RULE = (
    "one name, or two with a point between; a name is a letter, then letters, digits or _"
)

PRAGMA_NAME_PATTERN = r"^[A-Za-z][A-Za-z0-9_]{0,63}( [A-Za-z][A-Za-z0-9_]{0,63}){0,2}$"
RESERVED_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{1,63}\*?$"
_NAME_RULES = {
    RESERVED_PATTERN: "a name of C, of at least two characters, or the beginning of names and *",
    NAME_PATTERN: NAME_RULE,
    LOOP_NAME_PATTERN: LOOP_NAME_RULE,
    PRAGMA_NAME_PATTERN: "up to three names with a blank between; a name is a letter, then "
    "letters, digits or _",
}

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
ReservedName = Annotated[str, StringConstraints(pattern=RESERVED_PATTERN)]


def _number_or_text(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise PydanticCustomError("H032", "an integer or an expression over parameters")
    return value


def _rate(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise PydanticCustomError("H032", "a number or an expression over parameters")
    return value


def _frequency(value: object) -> object:
    if not isinstance(value, str):
        raise PydanticCustomError("H032", "a number with Hz, kHz, MHz or GHz")
    return value


def _text_or_lines(value: Data) -> Data:
    lines = value if isinstance(value, list) else [value]
    if not lines or not all(isinstance(line, str) for line in lines):
        raise PydanticCustomError("H032", "a statement, or a list of statements")
    return value


IntExpr = Annotated[int | str, BeforeValidator(_number_or_text)]
"""An integer, or an expression over parameters (in workloads: sizes)."""


RateExpr = Annotated[int | float | str, BeforeValidator(_rate)]
"""A number above zero, whole or not, or an expression over parameters, as `650 / 100`."""


def _number_text_or_list(value: object) -> object:
    for number in cast("list[object]", value) if isinstance(value, list) else [value]:
        if isinstance(number, bool) or not isinstance(number, int | str):
            raise PydanticCustomError("H032", "a number, a range, or a list of what fits")
    return cast("object", value)


RangeExpr = Annotated[int | str | list[int | str], BeforeValidator(_number_text_or_list)]
"""What a field holds: `low..high`, `low..high step n`, `2**(low..high)`, a list, or one number."""

Frequency = Annotated[str, BeforeValidator(_frequency)]
"""A number, or an expression over parameters, with a unit: `650 MHz`."""

Lines = Annotated[str | list[str], BeforeValidator(_text_or_lines)]
"""One statement, or a list of statements."""


class Model(BaseModel):
    """What a user may write: frozen, strict, unknown fields forbidden."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


M = TypeVar("M", bound=Model)


def kind_of(value: object) -> str | None:
    """Tag of the unions `int | str | {fields}`: which form a user chose."""
    if isinstance(value, Mapping | BaseModel):
        return "<fields>"
    if isinstance(value, int | str) and not isinstance(value, bool):
        return "<short>"
    return None


def validate(model: type[M], document: Document, findings: Findings, parts: Sequence[str]) -> M:
    """Check a document against a model. Errors go to `findings`; what is returned lacks the
    entries of `parts`, mappings by name, that have one.

    Raises:
        HwgenError: H032 where the document is no mapping.
        ConsequenceError: errors elsewhere, after which there is nothing to return.
    """
    if not isinstance(document.data, dict):
        raise HwgenError(
            "H032", "the document is not a mapping", location=document.locate(()),
            found=_show(document.data), allowed="a mapping of fields",
        )  # fmt: skip
    try:
        return model.model_validate(document.data)
    except ValidationError as problem:
        errors = problem.errors(include_url=False, include_context=True)
    located = {_path(document.data, e["loc"]): e for e in reversed(errors)}
    for (path, _), error in located.items():
        if error["type"] == "missing" and _misspelt(path, located):
            continue
        bad = path[:2] if len(path) > 1 and path[0] in parts else ()
        findings.note(_translate(model, document, error), str(bad[-1]) if bad else "")
    try:
        return model.model_validate(_without(document.data, parts, findings.broken))
    except ValidationError as problem:
        raise ConsequenceError("H030", "a bad field, noted before") from problem


def _misspelt(missing: FieldPath, located: Mapping[tuple[FieldPath, bool], ErrorDetails]) -> bool:
    """True if a missing field stands under a name much like its own, or is a statement that its
    colon made a mapping."""
    unknown = [
        str(path[-1])
        for (path, _), e in located.items()
        if e["type"] == "extra_forbidden" and path[:-1] == missing[:-1]
    ]
    name = str(missing[-1])
    return any(suggestion(u, (name,)) or (name == "do" and "=" in u) for u in unknown)


def _without(data: dict[str, Data], parts: Sequence[str], broken: Set[str]) -> dict[str, Data]:
    """The data without the broken entries of some of its mappings."""
    return {
        section: {n: v for n, v in given.items() if n not in broken}
        if section in parts and isinstance(given, dict)
        else given
        for section, given in data.items()
    }


def _path(data: Data, loc: tuple[Key, ...]) -> tuple[FieldPath, bool]:
    """The path through the data of pydantic's `loc`, which also names union members; and
    whether the error is about a key."""
    path: list[Key] = []
    about_key = loc[-1:] == ("[key]",)
    at: Data = data
    for i, step in enumerate(loc):
        last = i == len(loc) - 1
        if isinstance(at, dict) and str(step) in at:
            at = at[str(step)]
            path.append(str(step))
        elif isinstance(at, list) and isinstance(step, int) and step < len(at):
            at = at[step]
            path.append(step)
        elif last and isinstance(at, dict) and step != "[key]":
            path.append(step)
    return tuple(path), about_key


def _at(data: Data, path: FieldPath) -> Data:
    for step in path:
        if isinstance(data, dict):
            data = data.get(str(step))
        elif isinstance(data, list) and isinstance(step, int):
            data = data[step]
    return data


def _translate(model: type[Model], document: Document, error: ErrorDetails) -> HwgenError:
    path, about_key = _path(document.data, error["loc"])
    kind, context = error["type"], error.get("ctx", {})
    field, last = field_text(path), str(path[-1]) if path else ""
    found = _show(_at(document.data, path))
    here = document.locate(path)
    example = _example(model, path)
    match kind:
        case "missing":
            parent = document.locate(path[:-1], key=True)
            names = _field_names(model, document.data, path[:-1])
            return HwgenError(
                "H030", f"the field {last!r} is missing", location=parent, field=field,
                found=", ".join(_keys(_at(document.data, path[:-1]))) or "no fields",
                allowed=", ".join(names),
                repair=f"add {example or f'{last}: {_blank(_types(model, path))}'}",
            )  # fmt: skip
        case "extra_forbidden":
            names = _field_names(model, document.data, path[:-1])
            return HwgenError(
                "H031", f"no field is called {last!r} here",
                location=document.locate(path, key=True), field=field, found=last,
                allowed=", ".join(names),
                repair=of_unknown_field(last, names, _neighbours(document.data, path)),
            )  # fmt: skip
        case "string_pattern_mismatch":
            where = document.locate(path, key=about_key)
            name = last if about_key else found
            return HwgenError(
                "H034", "this cannot be used as a name", location=where, field=field, found=name,
                allowed=_NAME_RULES[str(context.get("pattern"))], repair=of_name(name),
            )  # fmt: skip
        case "literal_error":
            allowed = str(context.get("expected", "")).replace(" or ", ", ").replace("'", "")
            if found in allowed.split(", "):  # The same letters, as text and as a number.
                return HwgenError(
                    "H033", "the value is not one of those allowed", location=here, field=field,
                    found=f'"{found}", which is text', allowed=allowed,
                    repair=f"write {found} without quotes",
                )  # fmt: skip
            return HwgenError(
                "H033", "the value is not one of those allowed", location=here, field=field,
                found=found, allowed=allowed,
                repair=suggestion(found, allowed.split(", "))
                or ("" if "," in allowed else f"write {allowed}"),
            )  # fmt: skip
        case "union_tag_invalid":
            tag = str(context["tag"])
            allowed = str(context["expected_tags"]).replace("'", "")
            where = document.locate((*path, "kind"))
            return HwgenError(
                "H033", f"{field}.kind: {tag!r} is not supported", location=where,
                field=f"{field}.kind", found=tag, allowed=allowed,
                repair=suggestion(tag, allowed.split(", ")),
            )  # fmt: skip
        case "union_tag_not_found" if "kind" in str(context.get("discriminator", "")):
            return HwgenError(
                "H030", "the field 'kind' is missing", location=document.locate(path, key=True),
                field=f"{field}.kind", found=found,
            )  # fmt: skip
        case "H032":
            return _wrong_type(document, path, str(error["msg"]), example)
        case "union_tag_not_found":
            short = "text" if "text" in str(context["discriminator"]) else "a number, an expression"
            fields = _mapping_of(_field_names(model, document.data, path))
            return _wrong_type(document, path, f"{short}, or {fields}", example)
        case "model_type" | "model_attributes_type":
            fields = _mapping_of(_field_names(model, document.data, path))
            return _wrong_type(document, path, fields, example)
        case "too_short":
            return _wrong_length(document, path, f"at least {_entries(context['min_length'])}")
        case "too_long":
            return _wrong_length(document, path, f"at most {_entries(context['max_length'])}")
        case _:
            allowed = _ALLOWED.get(kind, str(error["msg"]).lower())
            return _wrong_type(document, path, allowed, example)


_ALLOWED = {
    "int_type": "an integer",
    "string_type": "text (in quotes where YAML reads it as a number)",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping of names",
    "string_too_long": "a shorter text",
}


def _mapping_of(names: Sequence[str]) -> str:
    return f"a mapping of fields: {', '.join(names)}" if names else "a mapping of fields"


def _entries(count: int) -> str:
    return "one entry" if count == 1 else f"{count} entries"


def _wrong_length(document: Document, path: FieldPath, allowed: str) -> HwgenError:
    value = _at(document.data, path)
    return HwgenError(
        "H032", "a list of the wrong length", location=document.locate(path),
        field=field_text(path),
        found=_entries(len(value)) if isinstance(value, list | dict) else _show(value),
        allowed=allowed,
    )  # fmt: skip


def _wrong_type(document: Document, path: FieldPath, allowed: str, example: str) -> HwgenError:
    value = _at(document.data, path)
    repair = of_wrong_type(
        value, _at(document.data, path[:-1]), _neighbours(document.data, path),
        field_text(path[-1:]), allowed,
    )  # fmt: skip
    repair = repair or (f"write {example}" if example else "")
    if isinstance(value, str) and value.lower() in ("yes", "no", "on", "off"):
        repair = "YAML 1.2 reads this as text; truth values are true and false"
    elif value is None:
        repair = "the value is empty: write one, or remove the field"
    return HwgenError(
        "H032", "a value of the wrong type", location=document.locate(path, key=value is None),
        field=field_text(path), found=_show(value), allowed=allowed, repair=repair,
    )  # fmt: skip


def _neighbours(data: Data, path: FieldPath) -> dict[str, Data]:
    """The fields beside one, and those around, the nearest first."""
    found: dict[str, Data] = {}
    for end in range(len(path) - 1, -1, -1):
        around = _at(data, path[:end])
        if isinstance(around, dict):
            found = {**around, **found}
    return found


def _keys(data: Data) -> list[str]:
    return list(data) if isinstance(data, dict) else []


def _show(value: Data) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case _:
            text = str(value)
            return text if len(text) <= 80 else f"{text[:77]}..."


def _field_names(model: type[Model], data: Data, path: FieldPath) -> list[str]:
    """The fields of the model that stands at a path below `model`; of a union whose members tell
    apart by `kind`, the one that the data says."""
    models = [k for k in _types(model, path) if isinstance(k, type) and issubclass(k, BaseModel)]
    here = _at(data, path)
    given = here.get("kind") if isinstance(here, dict) else None
    chosen = [m for m in models if given in _kinds(m)] or models
    return list(dict.fromkeys(name for m in chosen for name in m.model_fields))


def _example(model: type[Model], path: FieldPath) -> str:
    """How the innermost field around a path that has an example is written."""
    for end in range(len(path), 0, -1):
        for kind in _types(model, path[: end - 1]):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                info = kind.model_fields.get(str(path[end - 1]))
                if info is not None and info.examples:
                    return f"{path[end - 1]}: {_flow(info.examples[0])}"
    return ""


def _blank(kinds: Sequence[object]) -> str:
    """The needed fields of a place of one form, model or mapping, with dots for values."""
    models = [k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)]
    if len(kinds) == 1 and models:
        needed = ((n, i) for n, i in models[0].model_fields.items() if i.is_required())
        inner = [f"{n}: {_blank(_parts(i.annotation))}" for n, i in needed]
        return f"{{{', '.join(inner)}}}" if inner else "..."
    if len(kinds) == 1 and get_origin(kinds[0]) is dict:
        return f"{{NAME: {_blank(_parts(get_args(kinds[0])[-1]))}}}"
    return "..."


def _flow(value: object) -> str:
    """A value as YAML on one line."""
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, object]", value).items()
        return "{" + ", ".join(f"{name}: {_flow(v)}" for name, v in entries) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, cast("list[object]", value))) + "]"
    return str(value)


def _types(model: type[Model], path: FieldPath) -> list[object]:
    """What may stand at a path below a model."""
    current: list[object] = [model]
    for step in path:
        following: list[object] = []
        for kind in current:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                info = kind.model_fields.get(str(step))
                following += _parts(info.annotation) if info else []
            elif get_origin(kind) in (dict, list):
                following += _parts(get_args(kind)[-1])
        current = following
    return current


def _kinds(model: type[BaseModel]) -> tuple[object, ...]:
    """Values of the field `kind` that mean this model."""
    info = model.model_fields.get("kind")
    return get_args(info.annotation) if info else ()


def _parts(annotation: object) -> list[object]:
    """The members of unions and annotated types, flattened."""
    if hasattr(annotation, "__metadata__"):
        return _parts(get_args(annotation)[0])
    if get_origin(annotation) in (dict, list) or isinstance(annotation, type):
        return [annotation]
    arguments = get_args(annotation)
    return [part for a in arguments for part in _parts(a)] if arguments else [annotation]
