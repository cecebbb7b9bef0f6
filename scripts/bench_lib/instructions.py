"""What one operation costs both sides together, by room, and the calls it makes (bench/data_path.cc under callgrind);
and how much of it is the price of being movable, beside a build without those checks (src/transport/movable.h)."""

import collections
import functools
import re

from . import callgrind
from .contest import FERRY, output_of

# What data_path is told, and how many operations are counted.
OPERATIONS = {"SEND 64 B": ("send", 64, 1, 1000), "WRITE 64 B": ("write", 64, 1, 1000),
              "READ 64 B": ("read", 64, 1, 1000), "WRITE 64 B, 128 deep": ("write", 64, 1, 12_800, 128),
              "SEND 64 KiB": ("send", 1 << 16, 1, 100),
              "WRITE 64 KiB": ("write", 1 << 16, 1, 100), "WRITE 1 MiB": ("write", 1 << 20, 1, 10),
              "SEND 64 B, 128 QPs": ("send", 64, 128, 1280), "SEND 64 B, 512 QPs": ("send", 64, 512, 1540),
              "SEND 64 B, 4,096 QPs": ("send", 64, 4096, 4100)}
# Those that are also counted without the checks.
COMPARED = ("SEND 64 B", "WRITE 64 B", "READ 64 B", "WRITE 64 B, 128 deep", "SEND 64 KiB")
CALLS = {"sendmmsg": "sendmmsg", "recvmmsg": "recvmmsg", "clock reads": "clock_gettime", "locks": "pthread_mutex_lock",
         "copies": "copy_from_application|copy_to_application", "packets": "ferry::wire::parse"}
PARTS = 10  # as in data_path.cc


def _counted(contest, ferry, operation, size, qps, count, depth=1):
    """{"instructions": {room: per operation}, "calls": {what: per operation}}, of each the least of the run's parts:
    what the others have more of is the progress threads' and polls in vain."""
    host, profile = contest.server_host, "/tmp/data_path.callgrind"
    output_of(
        host,
        [*ferry, "valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={profile}",
         contest.lab.binaries / "data_path", "--operation", operation, "--size", size, "--qps", qps, "--count", count,
         "--depth", depth],
        timeout=600)
    parts = [_of_part(host.file(f"{profile}.{part}"), count / PARTS) for part in range(1, PARTS + 1)]
    return {"instructions": {room: min(rooms[room] for rooms, _ in parts) for room in callgrind.ROOMS},
            "calls": {what: min(calls[what] for _, calls in parts) for what in CALLS}}


def _of_part(path, count):
    rooms, calls = collections.Counter(), collections.Counter()
    for function, (instructions, called) in callgrind.functions_of(path).items():
        rooms[callgrind.room_of(*function)] += instructions / count
        for what, pattern in CALLS.items():
            if re.search(rf"(?<![\w])({pattern})\b", function[1]):
                calls[what] += called / count
    return rooms, calls


def _row(name, instructions):
    return [name, *(f"{round(figure):,}" for figure in (*instructions.values(), sum(instructions.values())))]


def _compare(contest, results):
    builds = {"movable": FERRY, "unmovable": ("env", "FERRY_NETDEV=rdma", f"LD_PRELOAD={contest.unmovable}")}
    rows = []
    for name in COMPARED:
        runs = contest.rounds(f"instructions, {name}", 1 if contest.quick else 3,
                              {build: functools.partial(_counted, contest, ferry, *OPERATIONS[name])
                               for build, ferry in builds.items()})
        runs = {build: [run["instructions"] for run in counted] for build, counted in runs.items()}
        results[name]["compared"] = runs
        product, without = ({room: min(run[room] for run in runs[build]) for room in callgrind.ROOMS}
                            for build in builds)
        rows += [_row(name, product), _row("not movable", without),
                 _row("difference", {room: product[room] - without[room] for room in product})]
    contest.table("Instructions that being movable costs", ["", *callgrind.ROOMS, "sum"], rows)


def measure(contest):
    results = {}
    for name, arguments in OPERATIONS.items():
        contest.progress.step(f"instructions: {name}")
        results[name] = _counted(contest, FERRY, *arguments)
    contest.table("Instructions of one operation in user space, both sides together", ["", *callgrind.ROOMS, "sum"],
                  [_row(name, result["instructions"]) for name, result in results.items()])
    contest.table("Calls of one operation", ["", *CALLS],
                  [[name, *(f"{result['calls'][what]:.2f}" for what in CALLS)] for name, result in results.items()])
    if contest.unmovable:
        _compare(contest, results)
    return results
