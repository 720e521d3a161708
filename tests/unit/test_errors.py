"""Blocks that an error may end."""

from __future__ import annotations

import pytest

from hwgen.errors import HwgenError, Tolerating


@pytest.mark.parametrize("codes", ["H411", "H4", ("H302", "H41")])
def test_a_block_ends_at_an_error_that_is_tolerated(codes: str | tuple[str, ...]) -> None:
    error = HwgenError("H411", "a broken dependence")
    done: list[str] = []
    with Tolerating(codes) as refused:
        done.append("before")
        raise error
    assert refused.error is error
    assert done == ["before"]


@pytest.mark.parametrize("codes", ["H412", ("H3", "H5"), ()])
def test_any_other_error_is_raised(codes: str | tuple[str, ...]) -> None:
    with pytest.raises(HwgenError, match="H411"), Tolerating(codes):
        raise HwgenError("H411", "H411")
    with pytest.raises(KeyError), Tolerating(codes):
        raise KeyError("H411")
