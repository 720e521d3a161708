"""Speed and agreement of the timing model: `python -m benchmarks.timing`."""

from __future__ import annotations

from itertools import pairwise
from time import process_time

from benchmarks.whole import simulate_timing
from hwgen.model.bound import lower_bound
from hwgen.model.sync_check import check_synchronisation
from hwgen.model.timing import estimate_cycles
from hwgen.spec.load import load_hardware
from tests.samples import ROOT
from tests.unit.timing.nests import gemm_nest
from tests.unit.timing.test_rules import single_buffered, straightforward

SIMULATED_OPERATIONS = 100_000


def main() -> None:
    """Print measured programs first, then growing loop nests."""
    print("measured program                 L=W   measured  modelled   ratio")
    for latency, name, program, measured in (
        (20, "256x256x256, bias, requantised", straightforward(), 146_432),
        (100, "256x256x256, bias, requantised", straightforward(), 187_872),
        (20, "1x256x256, one slot", single_buffered(), 9_632),
        (100, "1x256x256, one slot", single_buffered(), 12_592),
    ):
        chip = load_hardware(
            ROOT / "hw_specs" / "vta.yaml", {"READ_LATENCY": latency, "WRITE_LATENCY": latency}
        )
        cycles = simulate_timing(program, chip).cycles
        print(f"{name:32s} {latency:3d} {measured:10,d} {cycles:9,d}  {cycles / measured:.5f}")
    chip = load_hardware(ROOT / "hw_specs" / "vta.yaml")
    print("\n   operations  estimate s  stepped  simulation k/s    ratio  check s  bound s")
    for tiles, tile in (
        ((4, 4, 4), (16, 4, 4)),
        ((8, 8, 32), (16, 4, 4)),
        ((31, 31, 7), (5, 3, 3)),
        ((16, 16, 32), (16, 4, 4)),
        ((64, 64, 512), (16, 4, 4)),
        ((128, 513, 511), (64, 8, 2)),
    ):
        program = gemm_nest(tiles, tile, tail_rows=3)
        times = [process_time()]
        estimate = estimate_cycles(program, chip)
        times.append(process_time())
        check_synchronisation(program, chip)
        times.append(process_time())
        lower_bound(program, chip)
        times.append(process_time())
        rate, ratio = "", ""
        if estimate.operations <= SIMULATED_OPERATIONS:
            full = simulate_timing(program, chip)
            rate = f"{full.operations / (process_time() - times[-1]) / 1000:.0f}"
            ratio = f"{estimate.cycles / full.cycles:.5f}"
        took = [after - before for before, after in pairwise(times)]
        print(
            f"{estimate.operations:13,d} {took[0]:11.3f} {estimate.simulated:8,d} {rate:>15s} "
            f"{ratio:>8s} {took[1]:8.3f} {took[2]:8.3f}"
        )


if __name__ == "__main__":
    main()
