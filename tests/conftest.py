"""Options and fixtures for every test."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from tests.sampling import EVERYTHING

# The same examples every time; a campaign looks for others.
settings.register_profile("suite", deadline=None, derandomize=not EVERYTHING)
settings.load_profile("suite")
# One process per core already: threads inside NumPy only get in each other's way.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Tests neither read nor leave anything in the user's cache.
os.environ.setdefault("HWGEN_CACHE_DIR", "")

UPDATE = "--update-goldens"

Golden = Callable[[Path, str], None]
"""Compare a text with a golden file."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        UPDATE, action="store_true", help="write golden files instead of comparing with them"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption(UPDATE) and os.environ.get("CI"):
        raise pytest.UsageError(f"{UPDATE} is refused where CI is set: review goldens by hand")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Fails on a missing or different golden; writes it only under `--update-goldens`."""

    def compare(path: Path, text: str) -> None:
        text = text.rstrip("\n") + "\n"
        if request.config.getoption(UPDATE):
            path.write_text(text, encoding="utf-8")
            return
        assert path.is_file(), (
            f"{path} is missing; look at the text, then run with {UPDATE}:\n{text}"
        )
        assert text == path.read_text(encoding="utf-8"), f"{path} differs; {UPDATE} rewrites it"

    return compare
