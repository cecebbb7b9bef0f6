"""Programs over the pipe, each part in a network namespace of its own, beside the same programs over TCP and others.

Processor time is that of all parts and of ferry-piped, with what it does when sockets are made.
"""

import itertools
import json
import os
import subprocess

from demo_lib.failure import Failure
from demo_lib.lab import last_line

from .figures import median, ratio, spread

RANKS = 8
PIPE, TCP, URING = "pipe", "TCP over a bridge", "io_uring over a bridge"
ALLREDUCE = {PIPE: "pipe", TCP: "tcp", URING: "uring", "Unix sockets": "unix"}
CHAIN = {PIPE: "pipe", TCP: "tcp"}
SIZES = {"64 B": 64, "512 B": 512, "1.5 KB": 1500}
REQUESTS = 10_000
DENIED = "10.6.0.0/16"
PORTS = itertools.count(7000)


def _run_all(spaces, commands):
    """What the parts print, and the processor time of ferry-piped. `commands`: one for each namespace."""
    before, running = spaces.piped_seconds(), []
    try:
        for number, command in enumerate(commands, 1):
            running.append(subprocess.Popen(
                ["ip", "netns", "exec", f"{spaces.name}-{number}", spaces.bin / command[0], *map(str, command[1:])],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=spaces.environment))
        printed = []
        for part in running:
            out, error = part.communicate(timeout=120)
            if part.returncode != 0:
                raise Failure(f"{commands[0][0]} failed: {last_line(error)}")
            printed.append(json.loads(out))
    except subprocess.TimeoutExpired as expired:
        raise Failure(f"{commands[0][0]} does not end") from expired
    finally:
        for part in running:
            part.kill()
            part.wait()
    return printed, spaces.piped_seconds() - before


def _allreduce(spaces, over, size):
    port = next(PORTS)
    ring = ",".join(os.path.join(spaces.folder.name, f"rank{rank}") if over == "unix" else f"10.99.0.{rank + 1}:{port}"
                    for rank in range(RANKS))
    ranks, piped = _run_all(spaces, [["ring_allreduce", "--over", over, "--ring", ring, "--rank", rank, "--size", size,
                                      "--json"] for rank in range(RANKS)])
    return {"gigabytes_per_s": min(rank["gigabytes_per_s"] for rank in ranks),
            "processor_seconds": sum(rank["processor_seconds"] for rank in ranks) + piped}


def _chain(spaces, over, size):
    driver, firewall, balancer, first, second = (f"10.99.0.{number}:{port}" for port in [next(PORTS)]
                                                 for number in range(1, 6))
    drive = ["drive", "--at", driver, "--to", firewall, "--workers", 2, "--requests", REQUESTS, "--size", size,
             "--deny", DENIED]
    functions = [["firewall", "--at", firewall, "--to", balancer, "--deny", DENIED],
                 ["balance", "--at", balancer, "--to", f"{first},{second}"],
                 *(["decrypt", "--at", worker, "--to", driver] for worker in (first, second))]
    printed, piped = _run_all(spaces, [["nf_chain", *part, "--over", over, "--json"] for part in [drive, *functions]])
    return {"milliseconds": printed[0]["seconds"] * 1e3,
            "processor_seconds": printed[0]["processor_seconds"] + printed[0]["driver_processor_seconds"] + piped}


def _figures(results, key):
    return {name: [run[key] for run in runs] for name, runs in results.items()}


def _measure_allreduce(contest, spaces, rounds):
    size = 50_000_000 if contest.quick else 200_000_000
    contestants = {name: lambda over=over: _allreduce(spaces, over, size) for name, over in ALLREDUCE.items()}
    if contest.attempt("pipe: allreduce over io_uring", lambda: _allreduce(spaces, "uring", 1_000_000)) is None:
        del contestants[URING]  # kernels may refuse it
    results = contest.rounds("pipe: allreduce", rounds, contestants)
    rates, costs = _figures(results, "gigabytes_per_s"), _figures(results, "processor_seconds")
    rows = [[name, f"{median(rates[name]):.3f}", spread(rates[name]), f"{ratio(rates[name], rates[TCP]):.2f}",
             f"{median(costs[name]):.2f}", f"{ratio(costs[name], costs[TCP]):.2f}"] for name in results]
    contest.table(f"The pipe: ring_allreduce of {size // 1_000_000} MB, {RANKS} ranks, messages of 1 MiB",
                  ["", "GB/s", "rounds", "/ TCP", "processor s", "/ TCP"], rows)
    contest.headline(f"pipe: allreduce, {RANKS} ranks", "GB/s", rates[PIPE], TCP, rates[TCP], True)
    return results


def _measure_chain(contest, spaces, rounds):
    results = contest.rounds("pipe: chain", rounds, {
        f"{name} {size}": lambda over=over, count=count: _chain(spaces, over, count)
        for size, count in SIZES.items() for name, over in CHAIN.items()})
    times, costs = _figures(results, "milliseconds"), _figures(results, "processor_seconds")
    rows = []
    for size in SIZES:
        pipe, tcp = (f"{name} {size}" for name in CHAIN)
        rows.append([size, f"{median(times[pipe]):.1f}", f"{median(times[tcp]):.1f}",
                     f"{ratio(times[pipe], times[tcp]):.2f}", f"{median(costs[pipe]):.3f}",
                     f"{median(costs[tcp]):.3f}", f"{ratio(costs[pipe], costs[tcp]):.2f}"])
    contest.table(f"The pipe: nf_chain, {REQUESTS:,} requests through three functions",
                  ["request", "pipe, ms", "TCP, ms", "pipe / TCP", "pipe, processor s", "TCP, processor s",
                   "pipe / TCP"], rows)
    contest.headline("pipe: chain of functions, 1.5 KB", "ms", times[f"{PIPE} 1.5 KB"], TCP, times[f"{TCP} 1.5 KB"])
    return results


def measure(contest, namespaces):
    """`namespaces`: of pipe.py, which makes them."""
    rounds = 1 if contest.quick else 5
    with namespaces(contest.lab, contest.quick, RANKS) as spaces:
        return {"allreduce": _measure_allreduce(contest, spaces, rounds),
                "chain": _measure_chain(contest, spaces, rounds)}
