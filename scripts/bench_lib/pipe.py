"""The pipe between two network namespaces of a bridge, beside TCP over that bridge, Unix sockets, and memcpy.

Nobody is pinned: the pipe has three parties, the two programs and ferry-piped, and takes no processor for itself.
Processor time is that of both programs and of ferry-piped, whose threads it is in that the copies are made.
"""

import json
import os
import pathlib
import subprocess
import tempfile
import time

from demo_lib.failure import Failure
from demo_lib.lab import last_line

from . import pipe_programs
from .contest import output_of
from .figures import median, ratio, spread

PIPE, TCP, UNIX = "pipe", "TCP over a bridge", "Unix sockets"
CARRIERS = (PIPE, TCP, UNIX)
SIZES = {"64 B": 64, "1 KiB": 1024, "4 KiB": 4096, "16 KiB": 16384, "64 KiB": 65536, "1 MiB": 1 << 20}
LATENCY_SIZES = {"64 B": 64, "8 KiB": 8192}
PERCENTILES = ("average", "median", "p75", "p90", "p99")
CONNECTIONS = (1, 16, 128, 512)
RING = 2 << 20  # of each of many connections
SERVER = "10.99.0.1"
# Of the paper's FPGA: Gbit/s (figure 10), and microseconds by PERCENTILES (tables 5 and 6).
PAPER_THROUGHPUT = {4096: 85, 65536: 85}
PAPER_LATENCIES = {64: (8.27, 7.39, 8.11, 13.82, 23.13), 8192: (9.85, 9.54, 9.78, 11.68, 18.84)}
TICKS = os.sysconf("SC_CLK_TCK")


def _ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"ip {' '.join(words)} failed: {last_line(done.stderr)}")


class Namespaces:
    """Some namespaces on a bridge of this one, of addresses 10.99.0.1 and so on, and a ferry-piped."""

    def __init__(self, lab, quick, count=2):
        self.name, self.bin, self.seconds = f"fp{lab.name}"[:9], pathlib.Path(lab.binaries), 0.5 if quick else 2
        self.count = count
        self.folder = self.piped = None
        self._port = 7000

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="ferry-bench-pipe.")
        try:
            _ip("link", "add", self.name, "type", "bridge")
            _ip("link", "set", self.name, "up")
            for number in range(1, self.count + 1):
                space, port = f"{self.name}-{number}", f"{self.name}v{number}"
                _ip("netns", "add", space)
                _ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
                _ip("link", "set", port, "master", self.name, "up")
                _ip("-n", space, "link", "set", "lo", "up")
                _ip("-n", space, "address", "add", f"10.99.0.{number}/24", "dev", "eth0")
                _ip("-n", space, "link", "set", "eth0", "up")
            socket = os.path.join(self.folder.name, "pipe.sock")
            self.piped = subprocess.Popen([self.bin / "ferry-piped", "--socket", socket, "--memory", "8G",
                                           "--container-memory", "4G"], stderr=subprocess.DEVNULL)
            self.environment = {**os.environ, "FERRY_PIPE_SOCKET": socket}
            deadline = time.monotonic() + 10
            while not os.path.exists(socket):
                if self.piped.poll() is not None or time.monotonic() > deadline:
                    raise Failure("ferry-piped does not start")
                time.sleep(0.02)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.piped:
            self.piped.terminate()
            self.piped.wait()
        for number in range(1, self.count + 1):
            subprocess.run(["ip", "netns", "delete", f"{self.name}-{number}"], capture_output=True, check=False)
        subprocess.run(["ip", "link", "delete", self.name], capture_output=True, check=False)
        self.folder.cleanup()

    def _command(self, number, carrier, *words):
        where = os.path.join(self.folder.name, "unix") if carrier == UNIX else f"{SERVER}:{self._port}"
        return ["ip", "netns", "exec", f"{self.name}-{number}", self.bin / "pd_perf", *map(str, words), "--at", where,
                "--over", "pipe" if carrier == PIPE else "sockets"]

    def _is_listening(self, carrier):
        if carrier == UNIX:
            return os.path.exists(os.path.join(self.folder.name, "unix"))
        listening = subprocess.run(["ip", "netns", "exec", f"{self.name}-1", "ss", "-Hltn"], capture_output=True,
                                   text=True, check=True).stdout
        return f":{self._port} " in listening

    def piped_seconds(self):
        fields = pathlib.Path(f"/proc/{self.piped.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def run(self, carrier, *words, size):
        """What the client and the server have measured, and the processor time of ferry-piped."""
        self._port += 1
        if carrier == UNIX:
            pathlib.Path(self.folder.name, "unix").unlink(missing_ok=True)
        before = self.piped_seconds()
        serving = subprocess.Popen(self._command(1, carrier, "serve", "--size", size), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=self.environment)
        try:
            deadline = time.monotonic() + 10
            while not self._is_listening(carrier):
                if serving.poll() is not None or time.monotonic() > deadline:
                    raise Failure(f"pd_perf serve over {carrier} does not start")
                time.sleep(0.02)
            client = subprocess.run(self._command(2, carrier, *words, "--size", size), capture_output=True, text=True,
                                    env=self.environment, timeout=60, check=False)
            if client.returncode != 0:
                raise Failure(f"pd_perf over {carrier} failed: {last_line(client.stderr)}")
            served = serving.communicate(timeout=30)[0]
        finally:
            serving.kill()
            serving.wait()
        return json.loads(client.stdout), json.loads(served), self.piped_seconds() - before

    def bandwidth(self, carrier, size):
        client, server, piped = self.run(carrier, "bandwidth", "--seconds", self.seconds, size=size)
        containers = client["processor_seconds"] + server["processor_seconds"]
        gigabytes = server["bytes"] / 1e9
        return {"gbit_per_s": server["gbit_per_s"],
                "processor_seconds_per_gb": (containers + piped) / gigabytes,
                "containers_seconds_per_gb": containers / gigabytes}

    def connections(self, carrier, count):
        """After a warm-up, in which each ring is written for the first time: the kernel has to find its pages."""
        client = self.run(carrier, "bandwidth", "--seconds", 2 * self.seconds, "--warm-up", 1 + count / 50,
                          "--connections", count, "--ring", RING, size=65536)[0]
        return {"gbit_per_s": client["gbit_per_s"], "deviation": client["deviation_of_connections"]}

    def latency(self, carrier, size, count):
        return self.run(carrier, "latency", "--count", count, size=size)[0]


def _figures(results, key):
    return {name: [run[key] for run in runs] for name, runs in results.items()}


def _streams(contest, spaces, rounds):
    memory = "memcpy, 64 KiB"
    contestants = {f"{carrier} {name}": lambda carrier=carrier, size=size: spaces.bandwidth(carrier, size)
                   for name, size in SIZES.items() for carrier in CARRIERS}
    contestants[memory] = lambda: {"gbit_per_s": json.loads(output_of(
        contest.client_host, ["memory_copy", "--seconds", contest.seconds]))["gbit_per_s"]}
    results = contest.rounds("pipe: streams", rounds, contestants)
    rates = _figures(results, "gbit_per_s")
    copies = rates.pop(memory)
    streams = {name: runs for name, runs in results.items() if name != memory}
    costs, own = _figures(streams, "processor_seconds_per_gb"), _figures(streams, "containers_seconds_per_gb")
    rows = []
    for name in SIZES:
        pipe, tcp, unix = (f"{carrier} {name}" for carrier in CARRIERS)
        rows.append([name, *(f"{median(rates[each]):.1f}" for each in (pipe, tcp, unix)), spread(rates[pipe]),
                     f"{ratio(rates[pipe], rates[tcp]):.1f}", f"{ratio(rates[pipe], rates[unix]):.1f}",
                     f"{ratio(rates[pipe], copies):.2f}"])
    contest.table("The pipe: one stream between two namespaces, Gbit/s of payload",
                  ["message", *CARRIERS, "rounds of the pipe", "pipe / TCP", "pipe / Unix", "pipe / memcpy"], rows,
                  f"memcpy of 64 KiB, beyond the caches: {median(copies):.0f} Gbit/s.")
    rows = []
    for name in SIZES:
        pipe, tcp, unix = (f"{carrier} {name}" for carrier in CARRIERS)
        rows.append([name, *(f"{median(costs[each]):.3f}" for each in (pipe, tcp, unix)),
                     f"{ratio(costs[pipe], costs[tcp]):.3f}", f"{ratio(own[pipe], costs[tcp]):.3f}",
                     f"{ratio(costs[pipe], costs[unix]):.3f}"])
    contest.table("The pipe: processor seconds per GB",
                  ["message", *CARRIERS, "pipe / TCP", "its containers' part / TCP", "pipe / Unix"], rows,
                  "Both programs and ferry-piped.")
    for name in ("64 B", "64 KiB"):
        pipe, tcp, _ = (f"{carrier} {name}" for carrier in CARRIERS)
        contest.headline(f"pipe: a stream of {name}", "Gbit/s", rates[pipe], TCP, rates[tcp], True)
        contest.headline(f"pipe: processor time, {name}", "s/GB", costs[pipe], TCP, costs[tcp])
    return results


def _latencies(contest, spaces, rounds):
    count = 5_000 if contest.quick else 50_000
    results = contest.rounds("pipe: latency", rounds, {
        f"{carrier} {name}": lambda carrier=carrier, size=size: spaces.latency(carrier, size, count)
        for name, size in LATENCY_SIZES.items() for carrier in CARRIERS})
    rows = [[name, *(f"{median(run[f'{key}_us'] for run in runs):.2f}" for key in PERCENTILES)]
            for name, runs in results.items()]
    contest.table("The pipe: latency of a message, one way, µs", ["", *PERCENTILES], rows)
    for name in LATENCY_SIZES:
        medians = _figures(results, "median_us")
        contest.headline(f"pipe: latency of {name}, one way", "µs", medians[f"{PIPE} {name}"], UNIX,
                         medians[f"{UNIX} {name}"])
    return results


def _connections(contest, spaces, rounds):
    results = contest.rounds("pipe: connections", rounds, {
        f"{carrier} {count}": lambda carrier=carrier, count=count: spaces.connections(carrier, count)
        for count in CONNECTIONS for carrier in (PIPE, TCP)})
    rates, deviations = _figures(results, "gbit_per_s"), _figures(results, "deviation")
    rows = [[f"{count}", *(f"{median(rates[f'{carrier} {count}']):.1f}" for carrier in (PIPE, TCP)),
             *(f"{median(deviations[f'{carrier} {count}']):.1%}" for carrier in (PIPE, TCP))] for count in CONNECTIONS]
    contest.table("The pipe: many connections, messages of 64 KiB",
                  ["connections", "pipe, Gbit/s", "TCP, Gbit/s", "pipe, deviation", "TCP, deviation"], rows,
                  "One thread on each side, rings of 2 MiB. Deviation: of what each connection has sent, by the mean.")
    return results


def _rtl(contest, spaces):
    """The engine in hardware, in its own cycles, which are the same in each run. None: this build does not have it."""
    if not (spaces.bin / "pipe_rtl").exists():
        return None
    results = json.loads(output_of(contest.client_host, ["pipe_rtl", "--json"]))
    contest.table("The pipe's rtl engine at 250 MHz behind PCIe 3.0 x16, Gbit/s",
                  ["message, bytes", "as aligned", "other alignment", "the paper's FPGA"],
                  [[f"{row['message']}", f"{row['aligned']:.1f}", f"{row['unaligned']:.1f}",
                    f"{PAPER_THROUGHPUT.get(row['message'], '')}"] for row in results["throughput"]])
    rows = []
    for row in results["latency"]:
        rows.append([f"{row['message']}", *(f"{row[key]:.2f}" for key in PERCENTILES)])
        rows.append([f"{row['message']}, the paper's FPGA",
                     *(f"{latency:.2f}" for latency in PAPER_LATENCIES[row["message"]])])
    contest.table("The pipe's rtl engine: latency, µs", ["message, bytes", *PERCENTILES], rows,
                  "From the doorbell until the interrupt; the paper's with the software.")
    return results


def measure(contest):
    rounds = 1 if contest.quick else 5
    with Namespaces(contest.lab, contest.quick) as spaces:
        figures = {"streams": _streams(contest, spaces, rounds), "latency": _latencies(contest, spaces, rounds),
                   "connections": _connections(contest, spaces, rounds), "rtl": _rtl(contest, spaces)}
    return {**figures, **pipe_programs.measure(contest, Namespaces)}
