"""Blackout of a program with much memory, copied ahead and not, beside a plain CRIU move of an equal process; and what
copying ahead costs the program meanwhile."""

import signal
import time

from demo_lib import plain_criu
from demo_lib.failure import Failure
from demo_lib.traffic import await_listener

from . import series
from .figures import median, ratio, spread

MEMORY = 1024  # MiB
REWRITE = 5  # percent a second
BEFORE, AFTER = 3, 5  # seconds that throughput is measured before a move, and after the program goes on
SMALL = {"memory": 16, "qps": 8}
WAYS = {"copied ahead": ["--copy-ahead"], "stop and copy": ["--no-copy-ahead"]}


class _Stream:
    """stream_check under full load, both ways, that holds memory and checks it at its end."""

    def __init__(self, contest, name, port, memory, rewrite, qps):
        program = ["ferry", "run", "--", contest.lab.binaries / "stream_check"]
        self.peer = contest.lab.run(contest.lab.host(2), f"{name}-peer", [*program, "--listen", port])
        await_listener(self.peer, port)
        self.subject = contest.lab.run(
            contest.lab.host(1), name, [*program, self.peer.address, "--port", port, "--seconds", 0, "--qps", qps,
                                        "--memory", memory, "--rewrite", rewrite, "--series", "/dev/stderr"])
        self._await(lambda: len(self._points()) > 100, "does not start")

    def _points(self):
        return series.points(self.subject.log())

    def _await(self, condition, failure):
        deadline = time.monotonic() + 120
        while not condition():
            if self.subject.exit_status() is not None or time.monotonic() > deadline:
                raise Failure(f"{self.subject.name} {failure}: {self.subject.log().splitlines()[-1:]}")
            time.sleep(0.1)

    def move(self, to, *options):
        """The report, with what is left of the throughput while memory is copied, and after the program goes on."""
        time.sleep(BEFORE)
        report = self.subject.move(to, *options, timeout=300)
        time.sleep(AFTER)
        began, points = report["began"], self._points()
        stopped, resumed = series.standstill(points, began)
        before, copied = series.rate(points, began - BEFORE, began), began + report["ahead_ms"] / 1e3
        left = series.rate(points, began, copied) / before if copied > began else None
        return report | {"stood_ms": (resumed - stopped) * 1e3, "throughput_left": left,
                         "throughput_after": series.rate(points, resumed, resumed + AFTER) / before}

    def stop(self):
        self.subject.signal(signal.SIGTERM)
        deadline = time.monotonic() + 60
        while None in (self.subject.exit_status(), self.peer.exit_status()):
            if time.monotonic() > deadline:
                raise Failure(f"{self.subject.name} does not end")
            time.sleep(0.1)
        if (self.subject.exit_status(), self.peer.exit_status()) != (0, 0):
            raise Failure(f"{self.subject.name} lost something: {self.subject.log().splitlines()[-2:]}")


def _plain(contest, port):
    """A process with as much memory, that knows nothing of Ferry."""
    program = [contest.lab.binaries / "move_subject"]
    peer = contest.lab.run(contest.lab.host(2), "plain-peer", [*program, "--listen", port])
    await_listener(peer, port)
    subject = contest.lab.run(contest.lab.host(1), "plain",
                              [*program, peer.address, port, "--qps", 0, "--threads", 1, "--descriptors", 8,
                               "--memory", MEMORY])
    deadline = time.monotonic() + 60
    while "\n" not in subject.log():
        if subject.exit_status() is not None or time.monotonic() > deadline:
            raise Failure(f"move_subject does not start: {subject.log()}")
        time.sleep(0.1)
    return subject


def _large(contest):
    """By turns: each way moves the same program, and CRIU moves the plain one, there and back."""
    stream = _Stream(contest, "ahead", 20100, MEMORY, REWRITE, 4)
    plain = _plain(contest, 20101)
    runs = {name: [] for name in (*WAYS, "plain CRIU")}
    rounds = 2 if contest.quick else 6
    for turn in range(rounds):
        for name, options in WAYS.items():
            contest.progress.step(f"{MEMORY} MiB, round {turn + 1} of {rounds}: {name}")
            there = contest.lab.host(1 if stream.subject.host.name == "h3" else 3)
            runs[name].append(stream.move(there, *options))
        contest.progress.step(f"{MEMORY} MiB, round {turn + 1} of {rounds}: plain CRIU")
        parts = plain_criu.move(plain, contest.lab.host((3, 1)[turn % 2]), turn)
        runs["plain CRIU"].append(parts | {"blackout_ms": sum(parts.values())})
    stream.stop()
    plain.signal(signal.SIGTERM)
    return runs


def _small(contest):
    stream = _Stream(contest, "small", 20102, SMALL["memory"], REWRITE, SMALL["qps"])
    reports = []
    for turn in range(4 if contest.quick else 10):
        contest.progress.step(f"{SMALL['memory']} MiB, move {turn + 1}")
        reports.append(stream.subject.move(contest.lab.host((3, 1)[turn % 2])))
        time.sleep(0.5)
    stream.stop()
    return reports


def measure(contest):
    runs, small = _large(contest), _small(contest)
    blackouts = {name: [run["blackout_ms"] for run in of_name] for name, of_name in runs.items()}
    rows = []
    for name, of_name in runs.items():
        parts = [f"{median(run[part] for run in of_name):.0f}" for part in ("dump_ms", "transfer_ms", "restore_ms")]
        rows.append([name, f"{median(blackouts[name]):.0f}", spread(blackouts[name]), *parts,
                     f"{ratio(blackouts['copied ahead'], blackouts[name]):.2f}"])
    left = [run["throughput_left"] for run in runs["copied ahead"]]
    after = [run["throughput_after"] for run in runs["copied ahead"]]
    stood = [run["stood_ms"] for run in runs["copied ahead"]]
    sent = [f"{median(run[part] for run in runs['copied ahead']) / scale:,.0f}"
            for part, scale in (("ahead_rounds", 1), ("ahead_bytes", 1e6), ("last_bytes", 1e6), ("ahead_ms", 1))]
    contest.headline(f"blackout of a move, {MEMORY:,} MiB under load, copied ahead", "ms", blackouts["copied ahead"],
                     "plain CRIU, an equal process", blackouts["plain CRIU"])
    contest.table(
        f"Blackout of stream_check with {MEMORY} MiB, {REWRITE} % of it rewritten each second, 4 QPs under full load, "
        "milliseconds",
        ["", "median", "moves", "dump", "transfer", "restore", "copied ahead / this"], rows,
        f"Copied ahead: {sent[0]} rounds of {sent[1]} MB in {sent[3]} ms, {sent[2]} MB in the stop; throughput "
        f"meanwhile {median(left):.2f} ({spread(left)}) of before, and {median(after):.2f} ({spread(after)}) in the "
        f"{AFTER} s after the program went on, whose memory came then. Without any message: {median(stood):.0f} ms "
        f"({spread(stood)}), in steps of 10.", ("ms", blackouts))
    shares = [report["rdma_share_ms"] for report in small]
    whole = [report["blackout_ms"] for report in small]
    contest.table(f"A program with {SMALL['memory']} MiB and {SMALL['qps']} QPs under full load, milliseconds",
                  ["", "median", "moves"], [["blackout", f"{median(whole):.0f}", spread(whole)],
                                            ["RDMA share", f"{median(shares):.2f}", spread(shares)]])
    return {"large": runs, "small": small}
