"""Options and fixtures for every test."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from zlib import crc32

import pytest
from _pytest.terminal import TerminalReporter
from hypothesis import settings

from hwgen.polyhedral.tree import legality
from tests.sampling import EVERYTHING, THOROUGH

# The same examples every time; a campaign looks for others.
settings.register_profile("suite", deadline=None, derandomize=not EVERYTHING)
settings.load_profile("suite")
# One process per core already: threads inside NumPy only get in each other's way.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Tests neither read nor leave anything in the user's cache.
os.environ.setdefault("HWGEN_CACHE_DIR", "")

UPDATE = "--update-goldens"
LONGEST = (Path(__file__).parent / "longest.txt").read_text(encoding="utf-8").split()
"""Files that take longest, those first."""
FLAGS_OF_USERS = 6
"""One test of so many compiles C at the flags that users get."""
LEFT_OUT = pytest.StashKey[int]()
"""How many tests are left out as thorough."""
COLLECTED_AFTER = 2_000_000
"""New objects after which cyclic garbage is looked for: most of what tests make stays."""

Golden = Callable[[Path, str], None]
"""Compare a text with a golden file."""


Mutate = Callable[[ModuleType, str, object], None]
"""Put something else in the place of what a module has, until the test ends."""


@pytest.fixture
def mutate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mutate]:
    """The same for legality, of which answers are kept."""

    def put(module: ModuleType, name: str, instead: object) -> None:
        monkeypatch.setattr(module, name, instead)
        legality.forget()

    yield put
    legality.forget()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        UPDATE, action="store_true", help="write golden files instead of comparing with them"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption(UPDATE) and os.environ.get("CI"):
        raise pytest.UsageError(f"{UPDATE} is refused where CI is set: review goldens by hand")
    # In the order below, where files go to several processes.
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A long file that comes last would leave all processes but one without work."""
    if hasattr(config, "workerinput"):
        place = {name: n for n, name in enumerate(LONGEST)}
        items.sort(key=lambda item: place.get(item.nodeid.split("::")[0], len(place)))


def pytest_deselected(items: list[pytest.Item]) -> None:
    for config in {item.config for item in items}:
        if config.option.markexpr == f"not {THOROUGH.name}":
            left_out = sum(item.get_closest_marker(THOROUGH.name) is not None for item in items)
            config.stash[LEFT_OUT] = config.stash.get(LEFT_OUT, 0) + left_out


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a process that another one started: what it is told."""
    told: dict[str, object] | None = getattr(session.config, "workeroutput", None)
    if told is not None:
        told[THOROUGH.name] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Each process collects everything."""
    told: dict[str, int] = getattr(node, "workeroutput", {})
    node.config.stash[LEFT_OUT] = told.get(THOROUGH.name, 0)


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    left_out = config.stash.get(LEFT_OUT, 0)
    if left_out:
        terminalreporter.write_line(
            f"{left_out} tests that show more of the same are left out; make test-all runs all"
        )


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


def pytest_runtest_setup() -> None:
    # For each test: a command that was run here has set it for itself.
    gc.set_threshold(COLLECTED_AFTER)


@pytest.fixture(autouse=True)
def _quick_c(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """C at -O0, which compiles soonest; of some tests, and in a campaign, as users get it."""
    if not EVERYTHING and crc32(request.node.nodeid.encode()) % FLAGS_OF_USERS:
        monkeypatch.setenv("CFLAGS", "-O0")


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
