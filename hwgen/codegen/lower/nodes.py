"""The nodes of a program: calls with their micro-kernels, in the loops left around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hwgen.codegen.lower.sites import CallSite
from hwgen.codegen.nodes import Call, CallOperand, If, Loop, Node, with_inner
from hwgen.codegen.program import KernelLoop, MicroKernelDef
from hwgen.codegen.rewrite import bind
from hwgen.codegen.touches import Address
from hwgen.errors import HwgenError
from hwgen.spec.affine import Affine
from hwgen.spec.expression import Binary, Const, Expr, Name, add, multiply
from hwgen.spec.hardware import HardwareSpec


@dataclass(frozen=True, slots=True)
class _Radix:
    """One digit of a micro-kernel variant: a quantity that takes `size` values."""

    text: str
    expression: Expr
    size: int
    offsets: tuple[int, ...]


def call_of(site: CallSite, kernels: list[MicroKernelDef]) -> Call:
    intrinsic = site.operation.intrinsic
    hardware_loops = site.absorbed.hardware
    operands = tuple(
        CallOperand(
            operand.name,
            address.buffer,
            _address(address, site.counters),
            tuple(Const(w.strides[k]) for w in hardware_loops),
        )
        for k, (operand, address) in enumerate(zip(intrinsic.operands, site.addresses, strict=True))
    )
    extents = tuple(Const(w.extent) for w in hardware_loops)
    kernel, variant = "", None
    if intrinsic.micro_kernel is not None:
        definition, variant = _micro_kernel(site, len(kernels))
        kernel = definition.name
        kernels.append(definition)
    return Call(
        site.index,
        intrinsic.name,
        intrinsic.unit,
        operands,
        extents,
        site.operation.immediates,
        kernel,
        variant,
        site.operation.statement,
        lanes=site.lanes,
        intended=site.intended,
    )


def repeated(site: CallSite, call: Call) -> Node:
    """The call in the loops that are left around it."""
    node: Node = call
    for name, walk in reversed(list(zip(site.repeats, site.absorbed.outer, strict=True))):
        node = Loop(name, Const(0), Const(walk.extent), (node,))
    return node


def _address(address: Address, counters: Sequence[str]) -> Expr:
    offset = address.offset.along(counters).expression()
    if address.turn is None:
        return offset
    return add(
        offset, multiply(_slot(address.turn, address.slots, counters), Const(address.slot_stride))
    )


def _slot(turn: Affine, slots: int, counters: Sequence[str]) -> Expr:
    return Binary("%", turn.along(counters).expression(), Const(slots))


def _micro_kernel(site: CallSite, number: int) -> tuple[MicroKernelDef, Expr]:
    """The micro-kernel of a site and the expression that selects its variant."""
    digits = _digits(site)
    first = {name: low for name, (low, _) in site.spans.items()}
    bases: list[tuple[int, ...]] = [tuple(a.offset.fix(first).constant for a in site.addresses)]
    variant: Expr = Const(0)
    for digit in digits:
        bases = [
            tuple(b + value * o for b, o in zip(base, digit.offsets, strict=True))
            for base in bases
            for value in range(digit.size)
        ]
        variant = add(multiply(variant, Const(digit.size)), digit.expression)
    micro = site.operation.intrinsic.micro_kernel
    assert micro is not None
    if len(bases) > micro.max_variants:
        raise HwgenError(
            "H612",
            f"{site.operation.intrinsic.name} would need {len(bases)} micro-kernel variants",
            found=", ".join(f"{d.text}: {d.size}" for d in digits),
            allowed=f"at most {micro.max_variants}",
            repair="fewer tiles of a resident operand, or fewer slots",
        )
    definition = MicroKernelDef(
        f"k{number}",
        site.operation.intrinsic.name,
        tuple(KernelLoop(w.extent, w.strides) for w in site.absorbed.hardware),
        tuple(KernelLoop(w.extent, w.strides) for w in site.absorbed.sequence),
        tuple(bases),
        site.operation.immediates,
    )
    return definition, variant


def _digits(site: CallSite) -> list[_Radix]:
    """What the base addresses of a site depend on: tile counters, outer loops and slots."""
    digits: list[_Radix] = []
    moving = {n for a in site.addresses for n in a.offset.names}
    for name, (low, high) in site.spans.items():
        if name not in moving:
            continue
        offsets = tuple(a.offset.coefficient(name) for a in site.addresses)
        if high - low > 1:
            # Counted from the loop's first iteration: no address is made that no call has.
            digits.append(_Radix(name, add(Name(name), Const(-low)), high - low, offsets))
    turns: dict[tuple[Affine, int], list[int]] = {}
    for k, a in enumerate(site.addresses):
        if a.turn is not None and a.turn.terms:
            turns.setdefault((a.turn, a.slots), []).append(k)
    for (turn, slots), members in turns.items():
        offsets = tuple(a.slot_stride if k in members else 0 for k, a in enumerate(site.addresses))
        expression = _slot(turn, slots, site.counters)
        digits.append(_Radix(str(expression), expression, slots, offsets))
    return digits


def check_capacity(hardware: HardwareSpec, kernels: Sequence[MicroKernelDef]) -> None:
    used: dict[int, int] = {}
    for kernel in kernels:
        micro = hardware.intrinsic[kernel.intrinsic].micro_kernel
        assert micro is not None
        total = used.get(micro.capacity_operations, 0) + kernel.operations * len(kernel.bases)
        used[micro.capacity_operations] = total
        if total > micro.capacity_operations:
            raise HwgenError(
                "H613",
                "the kernel's micro-operations exceed their memory",
                found=f"more than {total} micro-operations",
                allowed=str(micro.capacity_operations),
                repair="smaller tiles, or fewer slots",
            )


def folded(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Drop loops that run once and conditions that are known."""
    result: list[Node] = []
    for node in nodes:
        match node:
            case Loop(variable, Const(low), Const(high), body) if high == low + 1:
                result += folded(bind(body, {variable: Const(low)}))
            case If():
                result.append(_fold_condition(node))
            case _:
                result.append(with_inner(node, folded))
    return tuple(result)


def _fold_condition(node: If) -> If:
    """One condition where both branches of a nested one do the same."""
    then, otherwise = folded(node.then), folded(node.otherwise)
    match otherwise:
        case (If(inner, same, ()),) if same == then:
            return If(Binary("or", node.condition, inner), then)
        case _:
            return If(node.condition, then, otherwise)
