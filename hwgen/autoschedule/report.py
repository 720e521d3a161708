"""What an automatic schedule was chosen from, and how far from perfect it is."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Choice:
    """One nest: what was done, the closed form's cycles for it, and what it was chosen from.

    `considered`: points of the grids of tile sizes; `pruned`: those that some limit excludes;
    `refused`: cheaper ones that the schedule's legality refused.
    """

    stage: str
    chosen: str
    cycles: float
    considered: int = 0
    pruned: int = 0
    refused: int = 0


@dataclass(frozen=True)
class SearchReport:
    """Every choice in order. `bound`: cycles that no schedule can go below; `exhausted`: whether
    every point of the grids was weighed and no limit on attempts cut the search short."""

    choices: tuple[Choice, ...] = ()
    bound: float = 0.0
    exhausted: bool = True
    notes: tuple[str, ...] = field(default=())

    @property
    def considered(self) -> int:
        return sum(c.considered for c in self.choices)

    @property
    def pruned(self) -> int:
        return sum(c.pruned for c in self.choices)

    @property
    def refused(self) -> int:
        return sum(c.refused for c in self.choices)

    @property
    def cycles(self) -> float:
        """The closed form's cycles of all nests."""
        return sum(c.cycles for c in self.choices)

    def __str__(self) -> str:
        how = "all of them" if self.exhausted else "not all were tried"
        lines = [
            f"{self.considered} points considered, {how}; {self.pruned} pruned by limits, "
            f"{self.refused} refused as illegal"
        ]
        lines += [f"  {c.stage}: {c.chosen}, {c.cycles:,.0f} cycles" for c in self.choices]
        lines += [f"  {note}" for note in self.notes]
        if self.bound:
            ratio = self.cycles / self.bound
            lines.append(f"bound {self.bound:,.0f} cycles; the choice is {ratio:.2f} times that")
        return "\n".join(lines)
