"""Programs of perftest, unmodified, over Ferry, and what they print."""

import re

from demo_lib.failure import Failure
from demo_lib.lab import last_line

from .contest import FERRY, SERVER

PORT = 18515


def _run(contest, program, options, loss):
    command = ["env", f"FERRY_FAULT_LOSS={loss}", *FERRY, program, "-F", *options]
    return contest.pair(command, [*command, SERVER], PORT)


def _row(program, size, columns, output):
    row = re.search(rf"^\s*{size}\s+\d+((?:\s+[\d.]+){{{columns}}})", output, re.MULTILINE)
    if not row:
        raise Failure(f"{program} printed no result: {last_line(output)}")
    return [float(figure) for figure in row[1].split()]


def latency(contest, program, size, iterations, *options):
    """Microseconds: {"median", "p99", "p999", "max"}; one way, and a round trip for ib_read_lat."""
    run = _run(contest, program, ["-s", size, "-n", iterations, *options], 0)
    _, worst, typical, _, _, p99, p999 = _row(program, size, 7, run.client)
    return {"median": typical, "p99": p99, "p999": p999, "max": worst}


def bandwidth(contest, program, size, *options, loss=0):
    """{"gbit_per_s", "messages_per_s", "processor_seconds_per_gb"}. `loss`: the share of packets that either side
    loses."""
    margin = 1  # seconds at both ends that do not count, but are sent
    seconds = contest.seconds + 2 * margin
    run = _run(contest, program,
               ["-s", size, "-m", 4096, "--report_gbits", "-D", seconds, "-f", margin, *options], loss)
    _, average, millions = _row(program, size, 3, run.client)
    return {"gbit_per_s": average, "messages_per_s": millions * 1e6,
            "processor_seconds_per_gb": run.processor_seconds / (average / 8 * seconds) if average else None}
