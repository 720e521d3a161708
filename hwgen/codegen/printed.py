"""Nodes of a program as text, for people and golden files."""

from __future__ import annotations

from collections.abc import Iterator

from hwgen.codegen.nodes import (
    SERIAL,
    Allocate,
    Assign,
    Barrier,
    Body,
    Call,
    Code,
    CombineAcrossThreads,
    Configure,
    If,
    IntrinsicCall,
    Keep,
    Launch,
    Loop,
    Node,
    Pop,
    PrefetchOf,
    Push,
    Routine,
    Signal,
    ThreadBarrier,
    Wait,
    inner,
)


def lines_of(body: Body, depth: int = 0) -> Iterator[str]:
    """The nodes, two spaces further in for each one around them."""
    pad = "  " * depth
    for node in body:
        yield pad + _head(node)
        match node:
            case If(_, then, otherwise):
                yield from lines_of(then, depth + 1)
                if otherwise:
                    yield f"{pad}else:"
                    yield from lines_of(otherwise, depth + 1)
            case Code():
                yield from (f"{pad}  {line}" for line in code_lines(node))
            case _:
                yield from lines_of(inner(node), depth + 1)


def code_lines(code: Code) -> Iterator[str]:
    """The arrays of some code and its nodes."""
    yield from (f"  {a}" for a in code.arrays)
    yield from lines_of(code.body, 1)


def _head(node: Node) -> str:
    match node:
        case Loop(variable, lower, upper, _, kind, _, pragmas):
            how = "" if kind == SERIAL else f", {kind}"
            how += "".join(f" [{k}={v}]" for k, v in pragmas)
            return f"for {variable} in {lower}..<{upper}{how}:"
        case If(condition, _, _):
            return f"if {condition}:"
        case Push() | Pop() | Barrier() | Signal() | Wait():
            return str(node)
        case Configure(configuration, register, values):
            given = ", ".join(f"{name}={value}" for name, value in values)
            return f"configure {configuration}[{register}]: {given}"
        case Call():
            return _call(node)
        case Code():
            return f"processor, {node.cycles} cycles:"
        case Assign(_, target, op, value):
            return f"{target} {op} {value}"
        case Allocate(buffer, _):
            return f"with {buffer}:"
        case Keep(target, _):
            return f"keep {target}:"
        case ThreadBarrier(reason):
            return f"barrier of threads{f' ({reason})' if reason else ''}"
        case PrefetchOf(access):
            return f"prefetch {access}"
        case IntrinsicCall(_, intrinsic, operands, _, _, _):
            shown = ", ".join(f"{o.name}={o.access} {dict(o.steps)}" for o in operands)
            return f"{intrinsic}({shown})"
        case CombineAcrossThreads(_, coordinates, _, partial, _, op, target, _, stores, _):
            over = ", ".join(f"{n}: {e}" for n, e in coordinates)
            where = f" where {' and '.join(map(str, stores))}" if stores else ""
            return f"{target} = {op} of {partial} over {over}{where}"
        case Launch(name, coordinates, _):
            return f"launch {name} " + ", ".join(f"{v}: {e}" for _, v, e in coordinates) + ":"
        case Routine(name, _):
            return f"routine for {name}:"


def _call(call: Call) -> str:
    operands = ", ".join(
        f"{o.name}={o.buffer}@{o.address}"
        + (f" step [{', '.join(map(str, o.strides))}]" if o.strides else "")
        for o in call.operands
    )
    extents = " x ".join(map(str, call.extents))
    values = "".join(f", {name}={value}" for name, value in call.immediates)
    variant = f" {call.kernel}[{call.variant}]" if call.kernel else ""
    variant += "".join(f" by {name}[{number}]" for name, number in call.registers)
    lanes = f", lanes {' x '.join(map(str, call.lanes))}" if call.lanes else ""
    return f"{call.intrinsic}{variant}({operands}{values}) over {extents or 1}{lanes}"
