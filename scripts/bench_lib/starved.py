"""What programs that only compute leave of the throughput, when there are more of them than processors."""

from . import peers
from .figures import median, ratio, spread

TEST = "ucp_put_bw"
SIZES = {"64 B": (64, 100_000), "64 KiB": (1 << 16, 10_000)}  # bytes, messages
OVER = {"Ferry": peers.ucx_over_ferry, "TCP": peers.ucx_over_tcp}
SPINNING = 3  # on each side's processor

# Linux gives each session a share of the processor, however many programs it has (sched_autogroup): only those of its
# own session starve a program. They end with the shell.
STARVE = """for _ in $(seq "$0"); do setpriv --pdeathsig KILL sh -c 'while :; do :; done' & done
            "$@"; status=$?; kill $(jobs -p); exit $status"""


def measure(contest):
    starters = {"alone": (), "starved": ("sh", "-c", STARVE, SPINNING)}
    contestants = {
        (over, size, how): lambda over=over, size=size, how=how: OVER[over](contest, TEST, *SIZES[size], starters[how])
        for over in OVER for size in SIZES for how in starters}
    results = contest.rounds("starved", 2 if contest.quick else 5, contestants)
    rows = []
    for size in SIZES:
        for over in OVER:
            alone, starved = results[over, size, "alone"], results[over, size, "starved"]
            rows.append([f"{size} over {over}", f"{median(alone):,.0f}", spread(alone), f"{median(starved):,.0f}",
                         spread(starved), f"{ratio(starved, alone):.2f}"])
    contest.headline(f"messages of 64 bytes beside {SPINNING} programs that spin: {TEST}", "a second",
                     results["Ferry", "64 B", "starved"], "UCX over TCP", results["TCP", "64 B", "starved"], True)
    contest.table(f"ucx_perftest {TEST}, messages a second", ["", "alone", "rounds", "starved", "rounds", "/ alone"],
                  rows, f"Starved: each side shares its processor with {SPINNING} programs that spin.")
    return {f"{over}, {size}, {how}": rates for (over, size, how), rates in results.items()}
