"""The first matches of a phase, or of a stage alone, each form of it matched once."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from math import prod

from hwgen.codegen.lower.image_uses import packed_bytes
from hwgen.constants import MATCHES_SEEN
from hwgen.errors import HwgenError
from hwgen.model.bound import cover_bound
from hwgen.passes.phase import MATCHES
from hwgen.polyhedral.match.matching import Match, ranked_matches
from hwgen.polyhedral.match.operations import Selection, Sharing
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.scop import Scop
from hwgen.spec.hardware import HardwareSpec

Room = Mapping[str, int] | None
"""Iterations of each loop that can be lanes, where loops have their places."""

_Selected = tuple[Scop, list[Selection]]


class FirstMatches:
    """Of one chip: what is known of forms that were matched, the refused ones too."""

    def __init__(self, hardware: HardwareSpec) -> None:
        self.hardware = hardware
        self._selected: dict[object, _Selected | HwgenError] = {}
        self._first: dict[object, list[Match]] = {}

    def __call__(self, scop: Scop, sharing: Sharing, room: Room = None) -> tuple[Scop, list[Match]]:
        """The matches with the fewest calls, and the scop that they are of.

        Raises:
            HwgenError: as `select`, `ranked_matches`.
        """
        said = tuple(map(str, scop.workload.statements))
        tensors = tuple((t.name, t.dtype, t.shape, t.role) for t in scop.workload.tensors)
        form = said, tensors, sharing
        if form not in self._selected:
            try:
                self._selected[form] = scop, select(scop, self.hardware, sharing)
            except HwgenError as error:
                self._selected[form] = error
        found = self._selected[form]
        if isinstance(found, HwgenError):
            raise found
        key = form, room and tuple(room.items())
        if key not in self._first:
            self._first[key] = self._ranked(*found, room)
        return found[0], self._first[key]

    def _ranked(self, scop: Scop, selections: list[Selection], room: Room) -> list[Match]:
        def calls(match: Match) -> int:
            """Applications of the costliest operation, with as many lanes as there are."""
            block = {
                n: size if room is None else min(size, room.get(n, 1)) for n, size in match.blocks
            }
            return max(
                prod(-(-scop.extents[n] // block.get(n, 1)) for n in o.loops)
                for o in match.selection.operations
            )

        ranked = ranked_matches(scop, selections, calls)
        found = list(islice((m for group in ranked for m in group), MATCHES_SEEN))

        def rank(match: Match) -> tuple[int, int, int, str]:
            packed = packed_bytes(scop, self.hardware, match)
            return calls(match), cover_bound(match, self.hardware).cycles, packed, str(match)

        # Not in the order in which the chip's file has its intrinsics.
        return sorted(found, key=rank)[:MATCHES]
