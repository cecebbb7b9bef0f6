"""The RDMA share of a move by the number of QPs, beside a plain CRIU move of an equal process."""

import itertools
import json
import signal
import time

from demo_lib import plain_criu
from demo_lib.failure import Failure
from demo_lib.lab import last_line
from demo_lib.traffic import await_listener

from .contest import wait_until
from .figures import difference_interval, median, spread

PATIENCE = 30  # seconds for programs to end
QPS = (1, 16, 128, 1024, 4096)
# The parts of rdma_share_ms in the report of `ferry move`.
SHARE_PARTS = {"rdma_stop_ms": "stop: suspend, detach", "rdma_resume_ms": "resume: attach, resume"}


def _command(contest, options):
    program = [contest.lab.binaries / "move_subject"]
    return program if options[:2] == ["--qps", 0] else ["ferry", "run", "--", *program]


def _subject(contest, name, port, options):
    """A peer on h2 and the program to move on h1; what the latter says of itself."""
    peer = contest.lab.run(contest.lab.host(2), f"{name}-peer", [*_command(contest, options), "--listen", port])
    await_listener(peer, port)
    subject = contest.lab.run(contest.lab.host(1), name, [*_command(contest, options), peer.address, port, *options])
    deadline = time.monotonic() + 120
    while "\n" not in subject.log():
        if subject.exit_status() is not None or time.monotonic() > deadline:
            raise Failure(f"move_subject does not start: {last_line(subject.log())}")
        time.sleep(0.02)
    return subject, peer, json.loads(subject.log().splitlines()[0])


def _stop(subject, peer):
    subject.signal(signal.SIGTERM)
    wait_until(lambda: '"sent"' in subject.log(), f"{subject.name} does not end: {last_line(subject.log())}", PATIENCE)
    if json.loads(last_line(subject.log()))["failed"] != 0:
        raise Failure(f"{subject.name} lost a message")
    wait_until(lambda: peer.exit_status() is not None, f"{peer.name} does not end", PATIENCE)


def _moved(contest, qps, repeats, port):
    """Moves of a program with so many QPs and of a plain one of its size, in turns."""
    subject, peer, size = _subject(contest, f"rdma{qps}", port, ["--qps", qps])
    plain, plain_peer, _ = _subject(
        contest, f"plain{qps}", port + 1,
        ["--qps", 0, "--threads", size["threads"], "--descriptors", size["descriptors"],
         "--memory", size["memory_bytes"] >> 20])
    ours, theirs = [], []
    for turn, to in zip(range(repeats), itertools.cycle((3, 1))):
        contest.progress.step(f"{qps} QPs, move {turn + 1} of {repeats}")
        ours.append(subject.move(contest.lab.host(to), "--no-copy-ahead"))  # as CRIU alone moves the other one
        theirs.append(plain_criu.move(plain, contest.lab.host(to), turn))
        time.sleep(0.3)
    _stop(subject, peer)
    _stop(plain, plain_peer)
    return {"size": size, "ferry": ours, "plain": theirs}


def measure(contest):
    results = {qps: _moved(contest, qps, 5 if contest.quick else 15, 20000 + 2 * k) for k, qps in enumerate(QPS)}
    shares = {f"{qps:,} QPs": [run["rdma_share_ms"] for run in runs["ferry"]] for qps, runs in results.items()}
    rows, difference_rows = [], []
    for name, runs in zip(shares, results.values()):
        split = [f"{median(run[part] for run in runs['ferry']):.3f}" for part in SHARE_PARTS]
        rows.append([name, f"{median(shares[name]):.3f}", spread(shares[name]), *split])
        ours, theirs = ([sum(run[part] for part in ("dump_ms", "restore_ms")) for run in runs[kind]]
                        for kind in ("ferry", "plain"))
        difference, low, high = difference_interval(ours, theirs)
        difference_rows.append([name, f"{median(ours):.1f}", f"{median(theirs):.1f}", f"{difference:+.1f}",
                                f"{low:+.1f} – {high:+.1f}"])
    for qps in (QPS[0], 1024):
        contest.headline(f"blackout of a move, {qps:,} QP{'s' if qps > 1 else ''}", "ms",
                         [run["blackout_ms"] for run in results[qps]["ferry"]], "plain CRIU, an equal process",
                         [sum(parts.values()) for parts in results[qps]["plain"]])
    contest.table("RDMA share of a blackout, directly timed, milliseconds",
                  ["", "median", "moves", *SHARE_PARTS.values()], rows,
                  "Published (MigrRDMA, table 1): 0.7 – 12.1.", ("ms", shares))
    contest.table("CRIU's dump and restore with Ferry, and of a plain process with equal threads, descriptors and "
                  "memory, milliseconds", ["", "with Ferry", "plain", "difference", "95 % interval"], difference_rows)
    return results
