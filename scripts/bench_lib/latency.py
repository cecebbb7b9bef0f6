"""64 bytes there and back: perftest over Ferry beside raw UDP and TCP."""

from . import peers, perftest
from .figures import median, ratio, spread

SIZE = 64
UDP = "raw UDP, both sides poll"
UDP_THREAD = "raw UDP, a thread is woken, the program spins"
TCP_POLLED, TCP_BLOCKING = "TCP, sockperf --nonblocked", "TCP, sockperf (blocking)"


def measure(contest):
    count = 50_000 if contest.quick else 200_000
    slow = count // 5  # of those that sleep and wake for each message

    def of(program, iterations, *options):
        return lambda: perftest.latency(contest, program, SIZE, iterations, *options)

    def read():  # ib_read_lat gives the whole READ, there and back
        return {key: value / 2 for key, value in perftest.latency(contest, "ib_read_lat", SIZE, count).items()}

    results = contest.rounds("latency", 3 if contest.quick else 7, {
        "ib_send_lat": of("ib_send_lat", count),
        "ib_read_lat, half": read,
        "ib_write_lat": of("ib_write_lat", count),
        "ib_send_lat -e": of("ib_send_lat", slow, "-e"),
        UDP: lambda: peers.udp_latency(contest, SIZE, count),
        UDP_THREAD: lambda: peers.udp_latency(contest, SIZE, slow, "--thread"),
        TCP_POLLED: lambda: peers.tcp_latency(contest, SIZE, "--nonblocked"),
        TCP_BLOCKING: lambda: peers.tcp_latency(contest, SIZE)})

    def against(runs, peer, key):
        return f"{ratio([run[key] for run in runs], [run[key] for run in results[peer]]):.2f}"

    rows = [[name, f"{median(run['median'] for run in runs):.2f}", spread([run["median"] for run in runs]),
             f"{median(run['p99'] for run in runs):.2f}", f"{max(run['max'] for run in runs):.0f}",
             against(runs, UDP, "median"), against(runs, UDP, "p99"), against(runs, TCP_POLLED, "median"),
             against(runs, TCP_BLOCKING, "median")] for name, runs in results.items()]
    for peer in (UDP, TCP_POLLED):
        contest.headline("latency of 64 bytes, one way: ib_send_lat", "µs",
                         *([run["median"] for run in results["ib_send_lat"]], peer,
                           [run["median"] for run in results[peer]]))
    contest.table("Latency of 64 bytes, one way, microseconds",
                  ["", "median", "medians of the rounds", "p99", "worst", "median / raw UDP", "p99 / raw UDP",
                   "median / TCP polled", "median / TCP blocking"], rows,
                  "A READ goes there and back: half of what ib_read_lat prints stands here.",
                  ("µs", {name: [run["median"] for run in runs] for name, runs in results.items()}))
    return results
