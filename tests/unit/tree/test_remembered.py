"""What a check found is kept for what is the same, and for nothing else."""

from __future__ import annotations

import pytest

from hwgen.errors import HwgenError
from hwgen.passes.start import Start
from hwgen.polyhedral.tree import legality, remembered
from hwgen.polyhedral.tree.loop_tree import LoopTree, Stage
from hwgen.polyhedral.tree.remembered import Remembered
from tests.unit.tree.toy import chip, make, start

CHAIN = make(
    "chain",
    dict.fromkeys("abcde", "float32[64, 48]"),
    [f"{n}[i, j] = {before}[i, j] + 1" for before, n in zip("abcd", "bcde", strict=True)],
)


def test_it_is_found_once() -> None:
    asked: list[int] = []
    known = Remembered[int]()

    def find() -> int:
        asked.append(1)
        return len(asked)

    assert [known.once("a", find), known.once("a", find), known.once("b", find)] == [1, 1, 2]
    known.forget()
    assert known.once("a", find) == 3


def test_a_refusal_is_not_kept() -> None:
    known = Remembered[int]()
    with pytest.raises(ZeroDivisionError):
        known.once("a", lambda: 1 // 0)
    assert known.once("a", lambda: 7) == 7


def test_the_oldest_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "KEPT", 2)
    known = Remembered[int]()
    for n, key in enumerate("abc"):
        known.once(key, lambda n=n: n)
    assert known.once("c", lambda: 9) == 2
    assert known.once("a", lambda: 9) == 9


def test_an_edit_has_only_what_it_touches_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    legality.forget()
    schedule = start(CHAIN, "npu")
    asked: list[str] = []
    home = legality._home  # pyright: ignore[reportPrivateUsage]

    def counted(state: LoopTree, stage: Stage, limit: int) -> tuple[str, ...]:
        asked.append(stage.tensor)
        return home(state, stage, limit)

    monkeypatch.setattr(legality, "_home", counted)
    schedule.split(schedule.get_loops("e")[0], factor=2)
    assert asked == ["d", "e"]
    schedule.compute_at("b", schedule.get_loops("c")[0])
    assert asked == ["d", "e", "b"]


def test_a_draft_is_checked_when_that_is_asked_for() -> None:
    """Who reads a tensor stands before who makes it: that is found then, and not before."""
    drawn = start(CHAIN, "npu").draft()
    state = drawn.state
    turned = state.with_root(state.root[::-1])
    drawn._commit(turned, "reorder", (), {})  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(HwgenError, match="H411"):
        drawn.settle()


def test_a_start_is_gone_on_from_without_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, tensor = Start(CHAIN, chip("npu")), "b"
    assert tensor in begun.schedule.state.stage

    def refuse(*_: object) -> None:
        raise AssertionError("nobody has asked for its schedule")

    with monkeypatch.context() as patched:
        patched.setattr(legality, "check", refuse)
        made = begun.inlined(tensor)
        assert tensor not in {s.target.tensor for s in made.workload.statements}
    assert tensor not in made.schedule.state.stage
