"""How many small messages a second one QP carries, beside UCX over TCP."""

from . import peers, perftest
from .figures import median, ratio, spread

SIZE, DEPTH = 64, 128
UCX_TESTS = ("tag_bw", "ucp_put_bw", "ucp_am_bw")  # the best of them counts


def measure(contest):
    def ferry(program, *options):
        return lambda: perftest.bandwidth(contest, program, SIZE, "-t", DEPTH, *options)["messages_per_s"]

    contestants = {"ib_write_bw": ferry("ib_write_bw"), "ib_send_bw": ferry("ib_send_bw", "-r", 4 * DEPTH),
                   "ib_write_bw, 128 QPs": ferry("ib_write_bw", "-q", 128)}
    for test in UCX_TESTS:
        contestants[f"ucx_perftest {test} over tcp"] = lambda test=test: peers.ucx_over_tcp(
            contest, test, SIZE, 500_000 if contest.quick else 2_000_000)
    results = contest.rounds("messages", 2 if contest.quick else 5, contestants)
    best = max((name for name in results if name.startswith("ucx")), key=lambda name: median(results[name]))
    rows = [[name + (" (best)" if name == best else ""), f"{median(rates) / 1e6:.3f}",
             spread([rate / 1e6 for rate in rates]), f"{ratio(rates, results[best]):.2f}"]
            for name, rates in results.items()]
    contest.headline("messages of 64 bytes: ib_write_bw", "a second", results["ib_write_bw"], best, results[best], True)
    contest.table("Messages of 64 bytes, millions a second", ["", "median", "rounds", "/ best UCX over tcp"], rows,
                  f"{DEPTH} requests deep.",
                  ("million/s", {name: [rate / 1e6 for rate in rates] for name, rates in results.items()}))
    return results
