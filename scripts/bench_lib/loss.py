"""What is left of the throughput when the wire loses packets (FERRY_FAULT_LOSS on both sides: packet by packet)."""

from . import perftest
from .figures import median, ratio, spread

LOSSES = {"no loss": 0, "0.1 %": 0.001, "1 %": 0.01}
# -u 12: 17 ms without an acknowledgement until a packet is sent again, not perftest's 67.
OPTIONS = ("-u", 12)


def measure(contest):
    sizes = {"64 KiB": 1 << 16, "1 MiB": 1 << 20}
    contestants = {
        (size, loss): lambda size=size, loss=loss: perftest.bandwidth(contest, "ib_write_bw", sizes[size], *OPTIONS,
                                                                      loss=LOSSES[loss])["gbit_per_s"]
        for size in sizes for loss in LOSSES}
    results = contest.rounds("loss", 2 if contest.quick else 5, contestants)
    rows = [[f"ib_write_bw {size}, {loss}", f"{median(rates):.2f}", spread(rates),
             f"{ratio(rates, results[size, 'no loss']):.2f}"] for (size, loss), rates in results.items()]
    contest.headline("bandwidth with 0.1 % of the packets lost: ib_write_bw 64 KiB", "Gbit/s",
                     results["64 KiB", "0.1 %"], "the same without loss", results["64 KiB", "no loss"], True)
    contest.table("Throughput with lost packets, Gbit/s", ["", "median", "rounds", "/ without loss"], rows, "",
                  ("Gbit/s", {f"{size}, {loss}": rates for (size, loss), rates in results.items()}))
    return {f"{size}, {loss}": rates for (size, loss), rates in results.items()}
