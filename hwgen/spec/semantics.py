"""Intrinsics' semantics: parsed, checked, and operands' shape and access derived from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from hwgen.spec.context import Context, name_offset
from hwgen.spec.expression import Access, Assign, Name, Unary, walk
from hwgen.spec.grammar import suggestion
from hwgen.spec.hardware import Access as AccessKind
from hwgen.spec.hardware import Immediate, Memory, Operand
from hwgen.spec.ranges import Range
from hwgen.spec.schema import HardwareSchema, IntrinsicSchema, OperandSchema
from hwgen.spec.source import FieldPath
from hwgen.spec.typecheck import ExpressionTypeError, check_assign

OFFCHIP_ADDRESS = Range(0, (1 << 48) - 1)
ANY = "any"
"""Of an operand's memory: wherever a processor can address; of a stride: whatever it is."""
ANY_STRIDE = Range(0, (1 << 48) - 1)


@dataclass(frozen=True, slots=True)
class Semantics:
    """Statements of an intrinsic, parameters substituted; indices as they access each operand."""

    statements: tuple[Assign, ...]
    paths: tuple[FieldPath, ...]
    indices: Mapping[str, tuple[str, ...]]
    access: Mapping[str, AccessKind]


def parse_semantics(
    context: Context,
    path: FieldPath,
    schema: IntrinsicSchema,
    iterators: Mapping[str, int],
) -> Semantics:
    """Parse an intrinsic's statements and check names, indices and what is written.

    Raises:
        HwgenError: H02x syntax, H118 names and indices, H120 writes.
    """
    lines = [schema.semantics] if isinstance(schema.semantics, str) else schema.semantics
    single = isinstance(schema.semantics, str)
    paths = tuple(
        (*path, "semantics") if single else (*path, "semantics", i) for i in range(len(lines))
    )
    parsed = [context.parse_assign(t, p) for t, p in zip(lines, paths, strict=True)]
    replaced: set[str] = set()
    indices: dict[str, tuple[str, ...]] = {}
    reads: set[str] = set()
    writes: dict[str, bool] = {}
    for text, where, statement in zip(lines, paths, parsed, strict=True):
        checker = _Names(context, schema, iterators, text, where)
        for access in checker.accesses(statement):
            known = indices.setdefault(access.tensor, checker.plain_indices(access))
            if known != checker.plain_indices(access):
                raise context.error(
                    "H118", f"operand {access.tensor!r} is accessed in two ways", where,
                    offset=name_offset(text, access.tensor), found=str(access),
                    allowed=f"{access.tensor}[{', '.join(known)}] everywhere",
                    repair="declare a second operand in the same memory",
                )  # fmt: skip
        target = statement.target.tensor
        checker.check_write(statement)
        valued = {n.tensor for n in walk(statement.value) if isinstance(n, Access)}
        if target not in writes and target not in reads | valued and statement.op == "=":
            # All of it is written first: what later statements add to is this call's own.
            replaced.add(target)
        writes[target] = writes.get(target, False) or statement.op != "="
        reads |= {n.tensor for n in walk(statement.value) if isinstance(n, Access)}
    _one_target(context, (*path, "semantics"), list(writes))
    kinds: dict[str, AccessKind] = {}
    for name in schema.operands:
        if name not in indices:
            raise context.error(
                "H118", f"operand {name!r} does not occur in the semantics",
                (*path, "operands", name), key=True, found=name,
                allowed=", ".join(indices), repair="use it in the semantics, or remove it",
            )  # fmt: skip
        if name in writes:
            again = (writes[name] or name in reads) and name not in replaced
            kinds[name] = "update" if again else "write"
        else:
            kinds[name] = "read"
    bound = tuple(Assign(s.target, s.op, context.bound(s.value)) for s in parsed)
    return Semantics(bound, paths, indices, kinds)


def _one_target(context: Context, path: FieldPath, written: list[str]) -> None:
    if len(written) > 1:
        raise context.error(
            "H120", "an intrinsic writes one operand", path, found=", ".join(written),
            allowed="one written operand", repair="split it into one intrinsic per operand",
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Names:
    context: Context
    schema: IntrinsicSchema
    iterators: Mapping[str, int]
    text: str
    path: FieldPath

    def accesses(self, statement: Assign) -> list[Access]:
        """Every operand access, after checking every name in the statement."""
        found: list[Access] = []
        for node in [statement.target, *walk(statement.value)]:
            match node:
                case Access(tensor, _):
                    if tensor not in self.schema.operands:
                        raise self._unknown("operand", tensor, list(self.schema.operands))
                    found.append(node)
                case Name(name):
                    known = [*self.iterators, *self.schema.immediates, *self.context.values]
                    if name in self.schema.operands:
                        raise self.context.error(
                            "H118", f"operand {name!r} stands without its indices", self.path,
                            offset=name_offset(self.text, name), found=name,
                            allowed=f"{name}[...] with one iterator per dimension",
                        )  # fmt: skip
                    if name not in known:
                        raise self._unknown("iterator, immediate or parameter", name, known)
                case Unary() | _:
                    pass
        return found

    def plain_indices(self, access: Access) -> tuple[str, ...]:
        plain: list[str] = []
        for index in access.indices:
            if isinstance(index, Name) and index.name not in self.iterators:
                raise self._unknown("iterator", index.name, list(self.iterators))
            if not isinstance(index, Name):
                raise self.context.error(
                    "H118", "an operand is indexed by plain iterators", self.path,
                    offset=name_offset(self.text, access.tensor), found=str(access),
                    allowed=", ".join(self.iterators) or "no iterators are declared",
                    repair="address arithmetic belongs in `loops`: strides are entries per step",
                )  # fmt: skip
            plain.append(index.name)
        if len(set(plain)) < len(plain):
            raise self.context.error(
                "H118", "an iterator indexes two dimensions of one operand", self.path,
                offset=name_offset(self.text, access.tensor), found=str(access),
                allowed="each iterator once",
            )  # fmt: skip
        return tuple(plain)

    def check_write(self, statement: Assign) -> None:
        """With `=`, each element is written once, every iterator that occurs being in the target;
        or again from its last value, in the iterators' order."""
        target = self.plain_indices(statement.target)
        used = {
            name
            for node in walk(statement.value)
            if isinstance(node, Name) and (name := node.name) in self.iterators
        }
        extra = [
            n for n in self.iterators if n in used and n not in target and self.iterators[n] > 1
        ]
        if statement.op == "=" and extra and not statement.running:
            raise self.context.error(
                "H120", "an element is written more than once", self.path,
                found=f"{statement} over {', '.join(extra)}",
                allowed="+=, max= or min= where an iterator is not in the target, or a value made "
                f"from {statement.target}, in the iterators' order",
            )  # fmt: skip

    def _unknown(self, what: str, name: str, known: list[str]) -> Exception:
        return self.context.error(
            "H118", f"no {what} is called {name!r}", self.path,
            offset=name_offset(self.text, name), found=name, allowed=", ".join(known) or "none",
            repair=suggestion(name, known),
        )  # fmt: skip


def check_types(
    context: Context,
    semantics: Semantics,
    operands: tuple[Operand, ...],
    immediates: tuple[Immediate, ...],
) -> None:
    """Check the statements' types.

    Raises:
        HwgenError: H119.
    """
    dtypes = {o.name: o.dtype for o in operands} | {i.name: i.dtype for i in immediates}

    def type_of(node: Access | Name) -> str:
        return dtypes[node.tensor] if isinstance(node, Access) else dtypes.get(node.name, "int32")

    for statement, where in zip(semantics.statements, semantics.paths, strict=True):
        try:
            check_assign(statement, type_of)
        except ExpressionTypeError as problem:
            raise context.error(
                "H119", problem.message, where, found=problem.found, repair=problem.repair
            ) from problem


def check_places(
    context: Context, path: FieldPath, fields: IntrinsicSchema, schema: HardwareSchema
) -> bool:
    """Whether an intrinsic runs on the processor and takes pointers, not on a unit.

    Raises:
        HwgenError: H134 it is neither the one nor the other.
    """
    anywhere = [n for n, o in fields.operands.items() if o.memory == ANY]
    for name, operand in fields.operands.items():
        where = (*path, "operands", name)
        if anywhere and operand.memory != ANY:
            raise context.error(
                "H134", f"operand {name!r} has a memory while {anywhere[0]!r} may be in any",
                (*where, "memory"), found=operand.memory, allowed="any, as the others",
                repair="write memory: any for all operands, or for none",
            )  # fmt: skip
        given = (
            ("address", operand.address), ("written_by", operand.written_by),
            ("same_as", operand.same_as),
        )  # fmt: skip
        for field, value in given if anywhere else (("strides", operand.strides),):
            if value not in (None, []):
                raise context.error(
                    "H134", f"an operand in {'any' if anywhere else 'one'} memory has no {field}",
                    (*where, field), key=True, found=field,
                    allowed="memory, dtype, strides" if anywhere else "memory, dtype, address, "
                    "written_by, same_as", repair=f"remove {field}",
                )  # fmt: skip
    if not anywhere:
        if fields.unit is None:
            raise context.error(
                "H134", "an intrinsic whose operands have memories runs on a unit", path, key=True,
                found="no unit", allowed=", ".join(schema.units) or "declare one under `units`",
                repair="add `unit`, or write memory: any for its operands",
            )  # fmt: skip
        return False
    if schema.processor is None:
        raise context.error(
            "H134", "memory: any is what a processor can address, and there is none",
            (*path, "operands", anywhere[0], "memory"), found=ANY,
            allowed=", ".join(schema.memories), repair="name a memory, or add a `processor`",
        )  # fmt: skip
    for field, value in (
        ("unit", fields.unit), ("loops", fields.loops), ("micro_kernel", fields.micro_kernel),
        ("result_latency_iterations", fields.result_latency_iterations),
        ("software_loops", fields.software_loops), ("stationary", fields.stationary),
        ("instructions", fields.instructions != 1), ("configuration", fields.configuration),
    ):  # fmt: skip
        if value:
            raise context.error(
                "H134", f"an intrinsic with operands in any memory has no {field}", (*path, field),
                key=True, found=field,
                allowed="iterators, semantics, operands, immediates, cycles, emit",
                repair=f"remove {field}: the processor runs it",
            )  # fmt: skip
    return True


def _strides(
    context: Context, path: FieldPath, schema: OperandSchema, shape: tuple[int, ...]
) -> tuple[Range, ...]:
    """Elements from one index to the next, per dimension; dense where nothing is said."""
    if schema.strides is None:
        dense = [prod(shape[d + 1 :]) for d in range(len(shape))]
        return tuple(Range(s, s) for s in dense)
    where = (*path, "strides")
    if len(schema.strides) != len(shape):
        raise context.error(
            "H134", "an operand has one stride per dimension", where,
            found=f"{len(schema.strides)} strides", allowed=f"{len(shape)}: {_shape(shape)}",
        )  # fmt: skip
    return tuple(
        ANY_STRIDE if text == ANY else context.range(text, (*where, d), 0)
        for d, text in enumerate(schema.strides)
    )


def resolve_operand(
    context: Context,
    path: FieldPath,
    schema: OperandSchema,
    memory: Memory | None,
    *,
    shape: tuple[int, ...],
    access: AccessKind,
    indices: tuple[str, ...],
) -> Operand:
    """An operand, its shape fitted to its memory's entry; without a memory, its strides.

    Raises:
        HwgenError: H116 data type, H117 shape, H121 address range, H134 strides.
    """
    name = str(path[-1])
    if memory is None:
        if schema.dtype is None:
            raise context.error(
                "H116", f"operand {name!r} needs a data type: any memory has none of its own",
                path, key=True, found="no dtype", repair="add dtype, as {memory: any, dtype: int8}",
            )  # fmt: skip
        strides = _strides(context, path, schema, shape)
        return Operand(
            name, "", schema.dtype, access, shape, ANY_STRIDE, strides=strides, indices=indices
        )
    if memory.kind == "offchip":
        if schema.dtype is None:
            raise context.error(
                "H116", f"operand {name!r} needs a data type: off-chip memory has none of its own",
                path, key=True, found="no dtype", repair="add dtype, as {memory: "
                f"{memory.name}, dtype: int8}}",
            )  # fmt: skip
        dtype, highest = schema.dtype, OFFCHIP_ADDRESS
        rank = 0 if memory.by_element else len(shape)
    else:
        dtype, highest = schema.dtype or memory.dtype, Range(0, memory.capacity_entries - 1)
        if dtype != memory.dtype:
            raise context.error(
                "H116", f"operand {name!r} differs in type from its memory", (*path, "dtype"),
                found=dtype, allowed=memory.dtype,
                repair="remove dtype, and cast in the semantics",
            )  # fmt: skip
        rank = len(memory.entry_shape)
        if rank and shape[-rank:] != memory.entry_shape:
            raise context.error(
                "H117", f"operand {name!r} does not fit the entries of memory {memory.name!r}",
                path, key=True, found=_shape(shape),
                allowed=f"trailing dimensions {_shape(memory.entry_shape)}, one entry",
                repair="index it by iterators with those extents, in that order",
            )  # fmt: skip
    address = highest
    if schema.address is not None:
        address = context.values_of(schema.address, (*path, "address"), 0)
        if address.minimum > highest.maximum:
            raise context.error(
                "H121", "the address range lies outside the memory", (*path, "address"),
                found=str(address), allowed=f"{highest} ({memory.capacity_entries} entries)",
            )  # fmt: skip
        if address.among or address.minimum % address.step:
            raise context.error(
                "H142", "addresses are all of a range, or the multiples of a number in it",
                (*path, "address"), found=str(address), allowed="low..high, or low..high step n "
                "where low is a multiple of n", repair="begin at 0",
            )  # fmt: skip
    return Operand(
        name, memory.name, dtype, access, shape, address, tuple(schema.written_by),
        indices=indices, rows=len(shape) - rank, same_as=schema.same_as or "",
    )  # fmt: skip


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "a single element"
