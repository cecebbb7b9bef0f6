"""Contestants that run in turns on two hosts of the lab: a server on h1, a client on h2."""

import os
import random
import resource
import subprocess
import time
from typing import NamedTuple

from demo_lib.failure import Failure
from demo_lib.lab import last_line

from . import figures

SERVER = "10.78.1.1"  # h1 on the hosts' RDMA network, which all contestants use
FERRY = ("env", "FERRY_NETDEV=rdma", "ferry", "run", "--")


class Run(NamedTuple):
    """One run of a pair: what both printed, and the processor time that they took, in seconds."""

    server: str
    client: str
    processor_seconds: float


class Contest:
    def __init__(self, lab, progress, quick, unmovable):
        self.lab, self.progress, self.quick = lab, progress, quick
        self.report, self.headlines = [], []  # tables, and lines of the summary
        self.failures = []  # what could not be measured, and why
        self.unmovable = unmovable  # libferry.so of a build that cannot be moved; None: not asked for
        self.server_host, self.client_host = lab.host(1), lab.host(2)
        self.seconds = 2 if quick else 4

    def pair(self, server, client, port, protocol="tcp", pin=True, timeout=120):
        """Runs both to the client's end, each on a processor of its own unless `pin` is False."""
        pinned = [["taskset", "--cpu-list", str(k % os.cpu_count())] if pin else [] for k in (0, 1)]
        serving = self.server_host.start([*pinned[0], *server], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                         text=True)
        try:
            self._await_port(serving, server, port, protocol)
            before = _children_seconds()
            status, out, error = self.client_host.run([*pinned[1], *client], timeout=timeout)
            if status != 0:
                lines = [line.strip() for line in (error or out).splitlines() if line.strip()]
                raise Failure(f"{program_of(client)} failed (exit status {status}): {'; '.join(lines[-4:])}")
            try:
                served = serving.communicate(timeout=5)[0]
            except subprocess.TimeoutExpired:  # one that serves for ever
                serving.terminate()
                served = serving.communicate(timeout=5)[0]
            return Run(served, out, _children_seconds() - before)
        finally:
            serving.kill()
            serving.wait()

    def _await_port(self, serving, server, port, protocol):
        """Until the server's socket is there."""
        option = "-Hltn" if protocol == "tcp" else "-Hlun"
        deadline = time.monotonic() + 15
        while f":{port} " not in self.server_host.run(["ss", option])[1]:
            if serving.poll() is not None or time.monotonic() > deadline:
                raise Failure(f"{program_of(server)} does not serve on port {port}: "
                              f"{last_line(serving.communicate()[0] if serving.poll() is not None else '')}")
            time.sleep(0.02)

    def rounds(self, what, count, contestants):
        """{name: [figure, ...]}, one figure of each contestant in each round; each round has an order of its own."""
        results = {name: [] for name in contestants}
        order = list(contestants)
        shuffle = random.Random(1).shuffle
        for turn in range(count):
            shuffle(order)
            for name in order:
                self.progress.step(f"{what}, round {turn + 1} of {count}: {name}")
                results[name].append(contestants[name]())
        return results

    def attempt(self, what, measurement):
        """What `measurement` gives. Nothing: it has failed, which is noted, and the contest goes on."""
        try:
            return measurement()
        except Failure as failure:
            self.failures.append(f"{what}: {failure}")
            return None

    def headline(self, what, unit, ours, peer, theirs, more_is_better=False):
        """A line of the summary."""
        self.headlines.append(figures.Headline(what, unit, ours, peer, theirs, more_is_better))

    def table(self, title, head, rows, note="", bars=None):
        """Prints a table, and keeps it for the page. `bars`: (unit, {name: [figure, ...]}), to be drawn above it."""
        self.progress.say(f"\n{title}\n")
        if note:
            self.progress.say(f"{note}\n")
        self.progress.say(figures.markdown(head, rows))
        self.report.append({"title": title, "head": list(head), "rows": rows, "note": note, "bars": bars})


def output_of(host, command, timeout=60):
    """What a program prints that runs by itself on a host."""
    status, out, error = host.run(command, timeout)
    if status != 0:
        raise Failure(f"{program_of(command)} failed (exit status {status}): {last_line(error or out)}")
    return out


def wait_until(condition, failure, seconds):
    """Failure when it has not become true by then."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise Failure(failure)
        time.sleep(0.02)


def program_of(command):
    words = [str(word) for word in command]
    return words[words.index("--") + 1] if "--" in words else words[0]


def _children_seconds():
    """Processor time, in user space and in the kernel, of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
