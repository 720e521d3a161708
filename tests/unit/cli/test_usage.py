"""Wrong usage names the words that were meant."""

from __future__ import annotations

import pytest

from hwgen.cli import main

Text = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("generate vta gemm", "write hwgen generate --spec vta --workload gemm"),
        ("verify vta", "write hwgen verify --spec vta"),
        ("generate --spec vta --target bare-metal", "did you mean 'firmware'?"),
        ("generate --spec vta --objective bytes", "is not one of cycles, traffic, energy"),
        ("simulate --spec vta --workload gemm --engine pyton", "did you mean 'python'?"),
        ("init chip --sync semaphores", "did you mean 'events'?"),
        ("help H999", "hwgen help H4 lists those of H4xx"),
        ("help H399", "hwgen help H3 lists those of H3xx"),
    ],
)
def test_usage(line: str, says: str, capsys: Text) -> None:
    assert main(line.split()) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert says in err
    assert "Value error" not in err
