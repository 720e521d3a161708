"""Two records of kernels: what differs, and what of it is worse."""

from __future__ import annotations

import pytest

from benchmarks.record import Row, differences

BEFORE: Row = {"refused": "", "cycles": 100, "bytes": 64, "script": "s", "c": "1", "seconds": 1.0}


@pytest.mark.parametrize(
    ("changed", "told", "worse"),
    [
        ({}, [], False),
        ({"seconds": 9.0}, [], False),
        ({"c": "2"}, ["a: c"], False),
        ({"cycles": 99, "c": "2"}, ["a: cycles 100 -> 99, c"], False),
        ({"cycles": 101}, ["a: cycles 100 -> 101"], True),
        ({"bytes": 65}, ["a: bytes 64 -> 65"], True),
        ({"refused": "H301"}, ["a: refused  -> H301"], True),
    ],
    ids=["equal", "time", "text", "faster", "slower", "more bytes", "refused"],
)
def test_what_differs(changed: Row, told: list[str], worse: bool) -> None:
    assert differences({"a": BEFORE}, {"a": BEFORE | changed}) == (told, worse)


def test_a_kernel_of_one_record_alone() -> None:
    assert differences({"a": BEFORE}, {}) == (["a: in one record alone"], True)
