"""C text for the calls of drawn chips: it names all that a template may name."""

from __future__ import annotations

from collections.abc import Sequence

from hwgen.verify.natural.draws import Spec


def rewrite_texts(spec: Spec) -> None:
    """Plain calls for every intrinsic and every configuration of a chip."""
    states: Spec = spec.get("configurations", {})
    for name, state in states.items():
        words = [f"register.{word}" for word in register_words(state)]
        state["emit"] = _call(f"write_{name}", [*words, *state["fields"]])
    for name, intrinsic in spec["intrinsics"].items():
        intrinsic["emit"] = call_text(name, intrinsic, states)


def call_text(name: str, intrinsic: Spec, states: Spec | None = None) -> str:
    """A call of a function of the intrinsic's name with every operand, loop, immediate and partial
    iterator, and the words of every register that it reads.

    A micro-kernel's loops and addresses are in its definition. `states`: the chip's configurations.
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
    given: Spec = intrinsic.get("iterators", {})
    arguments += [f"{name}.extent" for name, extent in given.items() if ".." in str(extent)]
    if "stationary" in intrinsic:
        arguments.append(f"{intrinsic['stationary']['operand']}.fresh")
    for state in intrinsic.get("configuration", {}):
        words = register_words((states or {}).get(state, {}))
        arguments += [f"{state}.{word}" for word in words]
    return _call(name, arguments)


def register_words(state: Spec) -> list[str]:
    """What templates may name of a configuration's registers: the values that all of them have."""
    registers: list[Spec] = state.get("registers", [{}])
    return [word for word in registers[0] if all(_same(word, r, registers[0]) for r in registers)]


def _same(word: str, one: Spec, other: Spec) -> bool:
    return word in one and isinstance(one[word], int) == isinstance(other[word], int)


def _call(name: str, arguments: Sequence[str]) -> str:
    return f"{name}({', '.join(f'{{{{ {a} }}}}' for a in arguments)});"
