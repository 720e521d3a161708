"""Synchronisation as C: which template writes a node, and which flag is next."""

from __future__ import annotations

from collections.abc import Iterator

from hwgen.codegen.c_names import NameTable
from hwgen.codegen.nodes import Body, Signal, Sync, SyncNode, Wait, nodes
from hwgen.codegen.program import Program
from hwgen.codegen.sync_nodes import Written
from hwgen.errors import HwgenError
from hwgen.spec.hardware import HardwareSpec


def written(hardware: HardwareSpec, node: SyncNode) -> Written:
    """How the chip's spec writes a node.

    Raises:
        HwgenError: H602 where the chip has no such synchronisation.
    """
    found = node.written(hardware)
    if found is None:
        raise HwgenError(
            "H602", "the kernel program does not fit the spec: the chip cannot synchronise so",
            location=hardware.location, field="synchronization", found=repr(node),
            repair="report the workload, the spec and this message",
        )  # fmt: skip
    return found


def sync_nodes(body: Body) -> Iterator[SyncNode]:
    """Every synchronisation, in textual order."""
    return (n for n in nodes(body) if isinstance(n, Sync))


class FlagCounters:
    """C variables that hold the next flag of each signalling and each waiting end; none where
    that is always the same."""

    def __init__(self, program: Program, names: NameTable) -> None:
        self._name: dict[tuple[str, str, str], str] = {}
        self._first: dict[str, int] = {}
        for node in sync_nodes(program.body):
            if isinstance(node, Signal | Wait) and node.count > 1:
                key = self._key(node)
                if key not in self._name:
                    self._name[key] = names.fresh("_".join(key))
                    self._first[self._name[key]] = node.first

    @staticmethod
    def _key(node: Signal | Wait) -> tuple[str, str, str]:
        return ("signal" if isinstance(node, Signal) else "wait", node.source, node.target)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._first)

    def declarations(self) -> list[str]:
        return [f"int {name} = {first};" for name, first in self._first.items()]

    def number(self, node: Signal | Wait) -> str:
        """The flag that the node takes, as C text."""
        return self._name[self._key(node)] if node.count > 1 else str(node.first)

    def step(self, node: Signal | Wait) -> list[str]:
        """What follows the node: the end's next flag."""
        if node.count == 1:
            return []
        name, last = self._name[self._key(node)], node.first + node.count - 1
        return [f"{name} = {name} < {last} ? {name} + 1 : {node.first};"]
