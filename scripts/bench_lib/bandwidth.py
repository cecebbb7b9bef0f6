"""Streams: perftest over Ferry beside iperf3 with its best settings, raw UDP, and a copy in memory."""

import json

from . import peers, perftest
from .contest import output_of
from .figures import median, ratio, spread

SIZES = {"64 KiB": 1 << 16, "1 MiB": 1 << 20}
UDP = "raw UDP, GSO and GRO"
MEMORY = "memcpy, 64 KiB"
# Whether each side is pinned to a processor, and what else iperf3 is told.
IPERF = {"": (True, []), "-Z": (True, ["-Z"]), "-P 2": (True, ["-P", 2]), "not pinned": (False, []),
         "-P 2, not pinned": (False, ["-P", 2]), "-Z -l 1M, not pinned": (False, ["-Z", "-l", "1M"]),
         "-w 4M, not pinned": (False, ["-w", "4M"])}


def _memory_copy(contest):
    printed = output_of(contest.client_host, ["memory_copy", "--seconds", contest.seconds])
    return {"gbit_per_s": json.loads(printed)["gbit_per_s"]}


def measure(contest):
    contestants = {f"{program} {name}": lambda program=program, size=size: perftest.bandwidth(contest, program, size)
                   for program in ("ib_write_bw", "ib_send_bw", "ib_read_bw") for name, size in SIZES.items()}
    settings = IPERF | {f"-C {name}, not pinned": (False, ["-C", name])
                        for name in peers.tcp_congestion_controls(contest)}
    for name, arguments in settings.items():
        contestants[f"TCP, iperf3 {name}".strip()] = lambda arguments=arguments: peers.tcp_stream(contest, *arguments)
    contestants[UDP] = lambda: peers.udp_stream(contest)
    contestants[MEMORY] = lambda: _memory_copy(contest)
    results = contest.rounds("bandwidth", 2 if contest.quick else 5, contestants)
    rates = {name: [run["gbit_per_s"] for run in runs] for name, runs in results.items()}
    # iperf3 counts with its best settings.
    best = max((name for name in rates if "iperf3" in name), key=lambda name: median(rates[name]))

    def row(name):
        # None where nothing was moved in the time that counts.
        costs = [cost for run in results[name] if (cost := run.get("processor_seconds_per_gb")) is not None]
        return [name + (" (best)" if name == best else ""), f"{median(rates[name]):.1f}", spread(rates[name]),
                *(f"{ratio(rates[name], rates[peer]):.2f}" for peer in (best, UDP)),
                f"{median(costs):.2f}" if costs else ""]

    for name in ("ib_write_bw 64 KiB", "ib_send_bw 64 KiB"):
        contest.headline(f"bandwidth: {name}", "Gbit/s", rates[name], f"{best}, its best settings", rates[best], True)
    contest.headline("bandwidth: ib_write_bw 64 KiB", "Gbit/s", rates["ib_write_bw 64 KiB"], UDP, rates[UDP], True)
    contest.table("Bandwidth of one connection, Gbit/s of payload",
                  ["", "median", "rounds", "/ best iperf3", "/ raw UDP", "processor seconds per GB, both sides"],
                  [row(name) for name in results], "", ("Gbit/s", rates))
    return results
