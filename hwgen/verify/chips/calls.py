"""C text for the calls of drawn chips: it names all that a template may name."""

from __future__ import annotations

from hwgen.verify.chips.draws import Spec


def call_text(name: str, intrinsic: Spec) -> str:
    """A call of a function of the intrinsic's name with every operand, loop and immediate.

    A micro-kernel's loops and addresses are in its definition.
    """
    arguments: list[str] = []
    if "micro_kernel" in intrinsic:
        arguments += ["kernel.name", "kernel.variant"]
    else:
        for operand, fields in intrinsic["operands"].items():
            # Only operands off the chip state a data type of their own.
            where = f"{operand}.buffer" if "dtype" in fields else f"{operand}.memory.name"
            arguments += [where, f"{operand}.address"]
        for loop, fields in intrinsic.get("loops", {}).items():
            arguments.append(f"{loop}.extent")
            arguments += [f"{loop}.stride.{operand}" for operand in fields.get("strides", {})]
        arguments += intrinsic.get("immediates", {})
    return f"{name}({', '.join(f'{{{{ {a} }}}}' for a in arguments)});"
