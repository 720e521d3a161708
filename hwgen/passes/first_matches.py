"""The first matches of a phase, or of a stage alone, each form of it matched once."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from math import prod

from hwgen.codegen.lower.image_uses import packed_bytes
from hwgen.errors import HwgenError
from hwgen.model.bound import cover_bound
from hwgen.polyhedral.match.matching import Match, ranked_matches
from hwgen.polyhedral.match.operations import Sharing
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.scop import Scop
from hwgen.spec.hardware import HardwareSpec

MATCHES = 3
"""Matches of a phase that are considered."""

SEEN = 32
"""Matches of which these are the first."""


class FirstMatches:
    """Of one chip: what is known of forms that were matched, the refused ones too."""

    def __init__(self, hardware: HardwareSpec) -> None:
        self.hardware = hardware
        self._known: dict[object, tuple[Scop, list[Match]] | HwgenError] = {}

    def __call__(
        self, scop: Scop, sharing: Sharing, room: Mapping[str, int] | None = None
    ) -> tuple[Scop, list[Match]]:
        """The matches with the fewest calls, and the scop that they are of; `room`: iterations of
        each loop that can be lanes, where loops have their places.

        Raises:
            HwgenError: as `select`, `ranked_matches`.
        """
        said = tuple(map(str, scop.workload.statements))
        tensors = tuple((t.name, t.dtype, t.shape, t.role) for t in scop.workload.tensors)
        key = said, tensors, sharing, room and tuple(room.items())
        if key not in self._known:
            try:
                self._known[key] = scop, self._first(scop, sharing, room)
            except HwgenError as error:
                self._known[key] = error
        found = self._known[key]
        if isinstance(found, HwgenError):
            raise found
        return found

    def _first(self, scop: Scop, sharing: Sharing, room: Mapping[str, int] | None) -> list[Match]:
        def calls(match: Match) -> int:
            """Applications of the costliest operation, with as many lanes as there are."""
            block = {
                n: size if room is None else min(size, room.get(n, 1)) for n, size in match.blocks
            }
            return max(
                prod(-(-scop.extents[n] // block.get(n, 1)) for n in o.loops)
                for o in match.selection.operations
            )

        ranked = ranked_matches(scop, select(scop, self.hardware, sharing), calls)
        found = list(islice((m for group in ranked for m in group), SEEN))

        def rank(match: Match) -> tuple[int, int, int, str]:
            packed = packed_bytes(scop, self.hardware, match)
            return calls(match), cover_bound(match, self.hardware).cycles, packed, str(match)

        # Not in the order in which the chip's file has its intrinsics.
        return sorted(found, key=rank)[:MATCHES]
