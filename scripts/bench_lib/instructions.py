"""What one operation costs both sides together, by room, and the calls it makes (bench/data_path.cc under callgrind)."""

import collections
import re

from . import callgrind
from .contest import FERRY, output_of

# What data_path is told, and how many operations are counted.
OPERATIONS = {"SEND 64 B": ("send", 64, 1, 1000), "WRITE 64 B": ("write", 64, 1, 1000),
              "READ 64 B": ("read", 64, 1, 1000), "WRITE 64 B, 128 deep": ("write", 64, 1, 12_800, 128),
              "SEND 64 KiB": ("send", 1 << 16, 1, 100),
              "WRITE 64 KiB": ("write", 1 << 16, 1, 100), "WRITE 1 MiB": ("write", 1 << 20, 1, 10),
              "SEND 64 B, 128 QPs": ("send", 64, 128, 1280), "SEND 64 B, 512 QPs": ("send", 64, 512, 1536),
              "SEND 64 B, 4,096 QPs": ("send", 64, 4096, 4096)}
CALLS = {"sendmmsg": "sendmmsg", "recvmmsg": "recvmmsg", "clock reads": "clock_gettime", "locks": "pthread_mutex_lock",
         "copies": "copy_from_application|copy_to_application", "packets": "ferry::wire::parse"}


def _counted(contest, operation, size, qps, count, depth=1):
    """{"instructions": {room: per operation}, "calls": {what: per operation}}"""
    host, profile = contest.server_host, "/tmp/data_path.callgrind"
    output_of(
        host,
        [*FERRY, "valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={profile}",
         contest.lab.binaries / "data_path", "--operation", operation, "--size", size, "--qps", qps, "--count", count,
         "--depth", depth],
        timeout=600)
    rooms, calls = collections.Counter(), collections.Counter()
    for function, (instructions, called) in callgrind.functions_of(host.file(profile)).items():
        rooms[callgrind.room_of(*function)] += instructions / count
        for what, pattern in CALLS.items():
            if re.search(rf"(?<![\w])({pattern})\b", function[1]):
                calls[what] += called / count
    return {"instructions": {room: rooms[room] for room in callgrind.ROOMS},
            "calls": {what: calls[what] for what in CALLS}}


def measure(contest):
    results = {}
    for name, arguments in OPERATIONS.items():
        contest.progress.step(f"instructions: {name}")
        results[name] = _counted(contest, *arguments)
    contest.table("Instructions of one operation in user space, both sides together", ["", *callgrind.ROOMS, "sum"],
                  [[name, *(f"{result['instructions'][room]:,.0f}" for room in callgrind.ROOMS),
                    f"{sum(result['instructions'].values()):,.0f}"] for name, result in results.items()])
    contest.table("Calls of one operation", ["", *CALLS],
                  [[name, *(f"{result['calls'][what]:.2f}" for what in CALLS)] for name, result in results.items()])
    return results
