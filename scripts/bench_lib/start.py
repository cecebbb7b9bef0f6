"""What `ferry run` adds to the start of a program, beside the library's preload alone."""

import os
import time

from demo_lib.failure import Failure

from .figures import median, plain, ratio, spread

PROGRAM = "/bin/true"
ALONE, PRELOAD, RUN = "the program alone", "libferry.so preloaded", "ferry run"


def _started(command, environment):
    """Milliseconds from its start to its end."""
    began = time.perf_counter()
    _, status = os.waitpid(os.posix_spawn(command[0], command, environment), 0)
    if status != 0:
        raise Failure(f"{command[0]} failed (exit status {os.waitstatus_to_exitcode(status)})")
    return (time.perf_counter() - began) * 1e3


def measure(contest):
    ferry, library = (str((contest.lab.binaries / name).resolve()) for name in ("ferry", "libferry.so"))
    ways = {ALONE: ([PROGRAM], os.environ), PRELOAD: ([PROGRAM], os.environ | {"LD_PRELOAD": library}),
            RUN: ([ferry, "run", "--", PROGRAM], os.environ)}
    starts = 50 if contest.quick else 200

    def of(way):
        return lambda: median(_started(*ways[way]) for _ in range(starts))

    results = contest.rounds("start", 3 if contest.quick else 7, {way: of(way) for way in ways})
    contest.headline(f"start of {PROGRAM} with ferry run", "ms", results[RUN], PRELOAD, results[PRELOAD])
    contest.table(f"From the start of {PROGRAM} to its end, milliseconds", ["", "median", "rounds", "/ preloaded"],
                  [[way, plain(median(times)), spread(times), f"{ratio(times, results[PRELOAD]):.2f}"]
                   for way, times in results.items()],
                  f"Each round is the median of {starts} starts.", ("ms", results))
    return results
