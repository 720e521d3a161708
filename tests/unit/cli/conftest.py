"""What the tests of the commands share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _searched_once(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a user has it: what one command has searched for, the next one finds."""
    monkeypatch.setenv("HWGEN_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))
