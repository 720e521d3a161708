"""Stands in for a kernel: what it is said to take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Made:
    """Modelled figures, as a search compares them."""

    cycles: int
    offchip_bytes: int = 0
    energy: float = 0.0
    onchip_bytes: int = 0
    unseen: float = 0.0
