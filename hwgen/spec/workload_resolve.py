"""What a user wrote (`workload_schema.py`) to a workload as data (`workload.py`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from math import prod

from hwgen.errors import HwgenError
from hwgen.spec.beginnings import with_beginnings
from hwgen.spec.context import Context, changed, definitions
from hwgen.spec.divided_loops import split_divided
from hwgen.spec.expression import (
    DTYPES,
    FUNCTIONS,
    Access,
    Assign,
    Binary,
    Const,
    Expr,
    Name,
    Unary,
    accesses,
    children,
    evaluate,
    names,
    rewrite,
    walk,
    with_children,
)
from hwgen.spec.findings import Findings
from hwgen.spec.limits import MAX_ELEMENTS, MAX_EXTENT
from hwgen.spec.source import Document, FieldPath
from hwgen.spec.suggest import suggestion
from hwgen.spec.typecheck import integer_range, is_float
from hwgen.spec.workload import Role, Statement, Tensor, Workload
from hwgen.spec.workload_checks import (
    Shapes,
    Written,
    check_affine,
    check_names,
    check_order,
    check_outputs,
    check_statement,
    guarded_accesses,
)
from hwgen.spec.workload_schema import StatementSchema, TensorSchema, WorkloadSchema
from hwgen.spec.workload_types import changed_types, resolve_types

RESERVED = frozenset({*DTYPES, *FUNCTIONS, "and", "or", "not", "inf"})
C_WORDS = frozenset({
    "alignas", "alignof", "and", "asm", "auto", "bitand", "bitor", "bool", "break", "case",
    "catch", "char", "class", "compl", "concept", "const", "constexpr", "continue", "decltype",
    "default", "delete", "do", "double", "else", "enum", "explicit", "export", "extern", "false",
    "float", "for", "friend", "goto", "if", "inline", "int", "long", "main", "mutable",
    "namespace", "new", "noexcept", "not", "nullptr", "operator", "or", "private", "protected",
    "public", "register", "requires", "restrict", "return", "short", "signed", "sizeof", "static",
    "struct", "switch", "template", "this", "throw", "true", "try", "typedef", "typeid",
    "typename", "union", "unsigned", "using", "virtual", "void", "volatile", "while", "xor"
})  # fmt: skip
"""Words of C and C++: workloads and tensors become C identifiers."""

POLYHEDRAL_WORDS = frozenset({
    "and", "ceil", "ceild", "exists", "false", "floor", "floord", "implies", "infinity", "infty",
    "max", "min", "mod", "nan", "not", "or", "rat", "true"
})  # fmt: skip
"""Words of isl, which it knows in any case: loops become its variables."""

_TENSOR = re.compile(r"\s*(?P<dtype>[A-Za-z_]\w*)\s*(?:\[(?P<shape>[^\[\]]*)\]\s*)?", re.ASCII)


def resolve_workload(
    schema: WorkloadSchema,
    document: Document,
    overrides: Mapping[str, int],
    findings: Findings,
    dtypes: Mapping[str, str],
) -> Workload:
    """Sizes, types, tensors, statements and roles, all checked; errors are findings.

    `overrides` and `dtypes` replace sizes and data types of the file.

    Raises:
        HwgenError: H02x expressions, H2xx meaning.
    """
    context = Context(document, {}, "size", findings)
    sizes = resolve_sizes(schema, context, overrides)
    known = resolve_types(schema, context, dtypes)
    context = replace(context, values=sizes, types=known)
    if schema.name in C_WORDS:
        raise _reserved(context, schema.name, ("name",), "workload", "C or C++", key=False)
    with findings.whole():
        types = findings.each(schema.tensors, lambda n: _tensor_type(context, n, schema.tensors[n]))
        shapes = dict(
            zip((n for n in schema.tensors if n not in findings.broken), types, strict=True)
        )
        read = findings.each(
            enumerate(schema.compute), lambda given: _statement(context, *given, shapes)
        )
    statements = [statement for statement, _ in read]
    written = [where for _, where in read]
    constants = [n for n, t in schema.tensors.items() if isinstance(t, TensorSchema) and t.constant]
    roles = check_order(written, statements, shapes, constants)
    tensors = tuple(
        Tensor(
            name, dtype, shape or (1,), roles[name], name in constants,
            document.locate(("tensors", name), key=True), written=_written(schema.tensors[name]),
            scalar=not shape, range=_range(context, name, schema.tensors[name], roles[name], dtype),
        )
        for name, (dtype, shape) in shapes.items()
    )  # fmt: skip
    check_outputs(written, statements, tensors)
    begun = with_beginnings(statements, tensors, {*sizes, *shapes})
    return Workload(
        schema.name, tuple(sizes.items()), tensors, begun, document.locate(("name",)),
        changed(
            sizes,
            overrides,
            lambda: resolve_sizes(schema, replace(context, findings=Findings()), {}),
        ),
        known.named, changed_types(schema, known),
    )  # fmt: skip


def _range(
    context: Context, name: str, given: str | TensorSchema, role: Role, dtype: str
) -> tuple[int, int] | None:
    """The values of an input that its callers keep to; None where there is no such promise.

    Raises:
        HwgenError: H229 of what is no integer input, or no values of its type.
    """
    if not isinstance(given, TensorSchema) or given.range is None:
        return None
    path: FieldPath = ("tensors", name, "range")
    if role != "input" or is_float(dtype):
        raise context.error(
            "H229", f"{name} has a range", path, found=f"{dtype}, {role}",
            allowed="integer inputs: the values of others follow from the statements",
            repair="leave it out",
        )  # fmt: skip
    found, (low, high) = context.range(given.range, path), integer_range(dtype)
    if not low <= found.minimum <= found.maximum <= high:
        raise context.error(
            "H229", f"{name} cannot have these values", path, found=str(found),
            allowed=f"{low}..{high}, the values of {dtype}",
        )  # fmt: skip
    return found.minimum, found.maximum


def _statement(
    context: Context, number: int, given: str | StatementSchema, shapes: Shapes
) -> tuple[Statement, Written]:
    """One statement, and what is needed to say where in it something stands."""
    fields = given if isinstance(given, StatementSchema) else None
    text = given.do if isinstance(given, StatementSchema) else given
    path: FieldPath = ("compute", number, "do") if fields else ("compute", number)
    assign = _bare(context.parse_assign(text, path), shapes)
    where = Written(context, text, path)
    check_names(where, assign, shapes)
    assign = assign.mapped(lambda a: a if a.indices else Access(a.tensor, (Const(0),)))
    shapes = {n: (dtype, shape or (1,)) for n, (dtype, shape) in shapes.items()}
    explicit = fields.loops if fields else None
    loops = (
        _default_loops(where, assign, shapes)
        if explicit is None
        else _explicit_loops(where, assign, explicit, ("compute", number, "loops"))
    )
    target = fold(context.bound(assign.target))
    assert isinstance(target, Access)
    bound = Assign(target, assign.op, fold(context.bound(assign.value)))
    made, loops = split_divided(bound, loops, {*context.values, *shapes})
    check_affine(where, bound, made)
    place = context.document.locate(path)
    statement = Statement(f"S{number}", loops, made.target, made.op, made.value, place)
    check_statement(where, statement, shapes)
    return statement, where


def _bare(assign: Assign, shapes: Shapes) -> Assign:
    """The statement with an access where a tensor without dimensions stands alone. A loop may be
    called as it is."""
    loops = {n for a in accesses(assign) for i in a.indices for n in names(i)}
    scalars = {n for n, (_, shape) in shapes.items() if not shape} - loops

    def access(part: Expr) -> Expr:
        if isinstance(part, Name) and part.name in scalars:
            return Access(part.name, ())
        return part

    return Assign(assign.target, assign.op, rewrite(assign.value, access))


def resolve_sizes(
    schema: WorkloadSchema, context: Context, overrides: Mapping[str, int]
) -> dict[str, int]:
    """Sizes by name; one set from outside replaces its expression, and what depends on it.

    Raises:
        HwgenError: H204 a reserved name, H210 unknown override.
    """
    known = list(schema.sizes)
    for name, value in overrides.items():
        if name not in schema.sizes:
            raise context.error(
                "H210", f"the workload has no size {name!r}", ("sizes",), key=True,
                found=f"{name}={value}", allowed=", ".join(known) or "no sizes",
                repair=suggestion(name, known),
            )  # fmt: skip
    texts = {name: overrides.get(name, text) for name, text in schema.sizes.items()}

    def read(above: Context, name: str) -> int:
        if name in RESERVED:
            path: FieldPath = ("sizes", name)
            raise _reserved(above, name, path, "size", "the expression language")
        return above.integer(texts[name], ("sizes", name))

    return definitions(context, texts, lambda name: ("sizes", name), read)


def _reserved(
    context: Context, name: str, path: FieldPath, what: str, language: str, *, key: bool = True
) -> HwgenError:
    return context.error(
        "H204", f"{name!r} is a word of {language} and cannot name a {what}", path, key=key,
        found=name, allowed="any other name", repair=f"call it {name}_ or {name}0",
    )  # fmt: skip


def _tensor_type(
    context: Context, name: str, given: str | TensorSchema
) -> tuple[str, tuple[int, ...]]:
    path: FieldPath = ("tensors", name)
    if name in RESERVED or name in C_WORDS:
        language = "the expression language" if name in RESERVED else "C or C++"
        raise _reserved(context, name, path, "tensor", language)
    if name in context.values:
        raise context.error(
            "H204", f"{name!r} is already a size", path, key=True, found=name,
            allowed="names that no size has", repair="rename the tensor or the size",
        )  # fmt: skip
    text = given.type if isinstance(given, TensorSchema) else given
    where: FieldPath = (*path, "type") if isinstance(given, TensorSchema) else path
    matched = _TENSOR.fullmatch(text)
    if matched is None:
        raise context.error(
            "H212", "a tensor is a data type and its extents", where, found=text[:80],
            allowed="as int8[M, K]", repair=_near_type(text.strip()),
        )  # fmt: skip
    named = dict(context.types.named)
    dtype = named.get(matched["dtype"], matched["dtype"])
    if dtype not in DTYPES:
        known = [*DTYPES, *named]
        raise context.error(
            "H212", f"no data type is called {dtype!r}", where, offset=matched.start("dtype"),
            found=dtype, allowed=", ".join(known),
            repair=suggestion(dtype, known) or f"name one of these, or add {dtype} to `dtypes`",
        )  # fmt: skip
    if not (matched["shape"] or "").strip():
        return dict(context.types.tensors).get(name, dtype), ()
    dtype = dict(context.types.tensors).get(name, dtype)
    offset = matched.start("shape")
    shape: list[int] = []
    for part in matched["shape"].split(","):
        extent = context.integer(part, where, shift=offset)
        if not 1 <= extent <= MAX_EXTENT:
            found = part.strip() if part.strip() == str(extent) else f"{part.strip()} = {extent}"
            raise context.error(
                "H211", f"an extent of tensor {name!r} is not positive" if extent < 1
                else f"an extent of tensor {name!r} is too large", where,
                offset=offset + len(part) - len(part.lstrip()), found=found,
                allowed=f"1..{MAX_EXTENT}", repair="take larger sizes" if extent < 1 else "take "
                "smaller sizes",
            )  # fmt: skip
        shape.append(extent)
        offset += len(part) + 1
    if prod(shape) > MAX_ELEMENTS:
        raise context.error(
            "H211", f"tensor {name!r} is too large", where, found=f"{prod(shape)} elements",
            allowed=f"at most {MAX_ELEMENTS} elements",
        )  # fmt: skip
    return dtype, tuple(shape)


def _written(given: str | TensorSchema) -> tuple[str, ...]:
    """The extents of a tensor's type as the file has them."""
    matched = _TENSOR.fullmatch(given.type if isinstance(given, TensorSchema) else given)
    shape = (matched["shape"] or "").strip() if matched else ""
    return tuple(p.strip() for p in shape.split(",")) if shape else ()


def _near_type(text: str) -> str:
    """A tensor's type near to a text that is none."""
    if found := re.fullmatch(r"(\w+)((?:\s*\[[^\[\]]+\]){2,})", text):
        return f"write {found[1]}[{', '.join(re.findall(r'[^][ ][^][]*', found[2]))}]"
    return "write the data type, then the extents in one bracket"


def _iterators(where: Written, assign: Assign) -> list[str]:
    """Loop names: those of the target's indices, then the rest by appearance."""
    nodes = [*walk(assign.target), *walk(assign.value)]
    found = dict.fromkeys(n.name for n in nodes if isinstance(n, Name))
    return [name for name in found if name not in where.context.values]


def _language_of_loop(name: str) -> str:
    """The language that a loop's name is a word of, or nothing."""
    if name in RESERVED:
        return "the expression language"
    return "the polyhedral library" if name.lower() in POLYHEDRAL_WORDS else ""


def _default_loops(where: Written, assign: Assign, shapes: Shapes) -> tuple[tuple[str, int], ...]:
    """Loops with the extents of the tensors that they index by themselves, the target before all:
    what it reads may be larger.

    Raises:
        HwgenError: H204 a reserved name, H216 no tensor gives an extent, H217 tensors disagree.
    """
    accesses = [(assign.target, False), *guarded_accesses(assign.value)]
    extents: dict[str, tuple[int, str]] = {}
    written: set[str] = set()
    # An access under a guard gives an extent only where nothing else does.
    for pass_guarded in (False, True):
        fixed = set(extents) if pass_guarded else set[str]()
        for access, guarded in accesses:
            if guarded != pass_guarded:
                continue
            for index, extent in zip(access.indices, shapes[access.tensor][1], strict=True):
                if not isinstance(index, Name) or index.name in {*where.context.values, *fixed}:
                    continue
                known, first = extents.setdefault(index.name, (extent, str(access)))
                if access is assign.target:
                    written.add(index.name)
                elif index.name in written and extent > known:
                    continue
                if known != extent:
                    raise where.error(
                        "H217", f"the extents of loop {index.name!r} disagree",
                        access.tensor, found=f"{known} from {first}, {extent} from {access}",
                        allowed="one extent", repair="correct a tensor's shape, or write the "
                        f"statement as {{do: ..., loops: {{{index.name}: {min(known, extent)}}}}}",
                    )  # fmt: skip
    order = _iterators(where, assign)
    for name in order:
        language = _language_of_loop(name)
        if language:
            raise where.error(
                "H204", f"{name!r} is a word of {language} and cannot name a loop", name,
                found=name, allowed="any other name", repair=f"call it {name}_ or {name}0",
            )  # fmt: skip
        if name not in extents:
            example = ", ".join(f"{n}: {extents[n][0] if n in extents else '...'}" for n in order)
            raise where.error(
                "H216", f"nothing gives the extent of loop {name!r}", name, found=name,
                allowed="a loop that indexes some tensor by itself",
                repair=f"write the statement as {{do: ..., loops: {{{example}}}}}",
            )  # fmt: skip
    return tuple((name, extents[name][0]) for name in order)


def _explicit_loops(
    where: Written, assign: Assign, given: Mapping[str, int | str], path: FieldPath
) -> tuple[tuple[str, int], ...]:
    """Loops as the user spelt them out.

    Raises:
        HwgenError: H204 a name already taken, H211 extents, H216 a loop is missing or unused.
    """
    context = where.context
    loops: list[tuple[str, int]] = []
    used = _iterators(where, assign)
    for name, text in given.items():
        at = (*path, name)
        language = _language_of_loop(name)
        if language or name in context.values:
            taken = "a size" if name in context.values else f"a word of {language}"
            raise context.error(
                "H204", f"the loop {name!r} has the name of {taken}", at, key=True, found=name,
                allowed="a name of its own",
            )  # fmt: skip
        extent = context.integer(text, at)
        if not 1 <= extent <= MAX_EXTENT:
            raise context.error(
                "H211", f"the extent of loop {name!r} is not positive" if extent < 1
                else f"the extent of loop {name!r} is too large", at, found=str(extent),
                allowed=f"1..{MAX_EXTENT}",
            )  # fmt: skip
        if name not in used and extent > 1:
            raise context.error(
                "H216", f"loop {name!r} does not occur in the statement", at, key=True,
                found=f"{name}: {extent}", allowed=", ".join(used) or "extent 1",
                repair=suggestion(name, used) or "remove it, or give it extent 1",
            )  # fmt: skip
        loops.append((name, extent))
    for name in used:
        if name not in given:
            raise where.error(
                "H216", f"`loops` leaves out loop {name!r}", name, found=", ".join(given),
                allowed=", ".join(used), repair=f"add {name} to `loops`",
            )  # fmt: skip
    return tuple(loops)


def fold(expr: Expr) -> Expr:
    """Integer arithmetic between numbers done, and `+ 0`, `- 0`, `* 1` dropped in indices.

    Elsewhere than in indices these stay, since arithmetic changes a narrow value's type.
    """
    inner = [fold(c) for c in children(expr)]
    match expr, inner:
        case Access(tensor, _), _:
            return Access(tensor, tuple(map(_drop_neutral, inner)))
        case Binary(op, _, _), [left, right]:
            return _number(Binary(op, left, right))
        case Unary("-", _), [Const(value)]:
            return Const(-value)
        case _:
            return with_children(expr, inner)


_FOLDED = ("+", "-", "*", "//", "%", "<<", ">>")


def _number(expr: Binary) -> Expr:
    match expr:
        case Binary(op, Const(int()), Const(int() as right)) if op in _FOLDED:
            if (op in ("//", "%") and right == 0) or (op in ("<<", ">>") and not 0 <= right < 64):
                return expr  # left for the type check to report
            value = evaluate(expr, {})
            return Const(value) if abs(value) <= (1 << 63) - 1 else expr
        case _:
            return expr


def _drop_neutral(expr: Expr) -> Expr:
    match expr:
        case Binary(op, left, right):
            left, right = _drop_neutral(left), _drop_neutral(right)
            match op, left, right:
                case (("+" | "-"), kept, Const(0)) | ("*", kept, Const(1)):
                    return kept
                case ("+", Const(0), kept) | ("*", Const(1), kept):
                    return kept
                case _:
                    return Binary(op, left, right)
        case _:
            return expr
