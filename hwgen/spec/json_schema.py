"""JSON Schema of the file formats, with the models' field docstrings as descriptions."""

from __future__ import annotations

import ast
import inspect
import re
from types import ModuleType
from typing import Any, cast

from hwgen.spec.fields import Model


def field_docstrings(module: ModuleType) -> dict[str, dict[str, str]]:
    """Docstring of every field of every class of a module, by class and field.

    They are read from the source here, not when a spec is loaded: that would slow every start.
    """
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if not isinstance(node, ast.ClassDef):
            continue
        fields: dict[str, str] = {}
        for base in node.bases:
            if isinstance(base, ast.Name):
                fields |= found.get(base.id, {})
        for statement, following in zip(node.body, node.body[1:], strict=False):
            match statement, following:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    fields[name] = " ".join(text.split())
                case _:
                    pass
        found[node.name] = fields
    return found


def json_schema(model: type[Model], modules: list[ModuleType], title: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a model, the same text on every run."""
    from hwgen.spec import fields

    docs: dict[str, dict[str, str]] = {}
    for module in [*modules, fields]:
        docs |= field_docstrings(module)
    schema = model.model_json_schema()
    for name, definition in {**schema.get("$defs", {}), model.__name__: schema}.items():
        for field, properties in definition.get("properties", {}).items():
            properties.pop("title", None)
            properties["description"] = docs[name][field]
    _drop_titles(schema)
    for name, definition in schema.get("$defs", {}).items():
        definition["title"] = _words(name)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}


def _words(name: str) -> str:
    """What editors call a definition, of the name of its class."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.removesuffix("Schema")).lower()


def _drop_titles(node: object) -> None:
    """Pydantic titles every schema by its Python name, which tells a user nothing."""
    if isinstance(node, dict):
        entries = cast("dict[str, object]", node)
        if isinstance(entries.get("title"), str):
            del entries["title"]
        for child in entries.values():
            _drop_titles(child)
    elif isinstance(node, list):
        for child in cast("list[object]", node):
            _drop_titles(child)
