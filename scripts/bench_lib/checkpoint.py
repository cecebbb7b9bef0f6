"""Checkpoints of two connected programs of one host: their standstill, the store beside dd of the same bytes, a plain
CRIU dump of processes of their size, and restarts beside reading all images. And what ferryds of many hosts need to
stop a job, and to let it go on."""

import json
import pathlib
import shutil
import subprocess
import tempfile
import time

from .contest import output_of, wait_until
from .figures import median, plain, ratio, spread

REWRITE = 5  # percent of the memory a second
PORT = 18700
PATIENCE = 60  # seconds for programs to start
JOB, PLAIN = ("server", "client"), ("plain-1", "plain-2")
HOSTS, RANKS, ROUND_TRIP = (1, 8, 32, 128), 16, 100  # played hosts; programs of each; microseconds


class _Programs:
    """Processes on h1, without containers, that hold so many MiB each: two of stream_check that are connected, and two
    that know nothing of Ferry."""

    def __init__(self, contest, memory):
        self.host, self.memory, self.processes = contest.lab.host(1), memory, {}
        self.check = ["ferry", "run", "--netdev", "rdma", "--", contest.lab.binaries / "stream_check", "--apart",
                      "--events", "--memory", memory, "--rewrite", REWRITE]

    def start(self):
        self._start("server", [*self.check, "--listen", PORT])
        wait_until(lambda: f":{PORT} " in self.host.run(["ss", "-Hltn"])[1], "stream_check does not listen", PATIENCE)
        self._start("client", [*self.check, "127.0.0.1", "--port", PORT, "--qps", 2, "--size", 4096, "--rate", 1000,
                               "--messages", 10**9])
        self.await_traffic()
        hold = f"import signal; memory = bytearray(b'x') * ({self.memory} << 20); print(flush=True); signal.pause()"
        for name in PLAIN:
            self._start(name, ["python3", "-c", hold])
        wait_until(lambda: all(self.host.file(f"/tmp/{name}").read_text() for name in PLAIN), "python3 does not start",
                   PATIENCE)

    def _start(self, name, command):
        """In a session of its own, with nothing open that is not the host's: CRIU restores no other."""
        self.host.file(f"/tmp/{name}").write_text("")
        self.processes[name] = self.host.start(["sh", "-c", f'exec "$@" </dev/null >/tmp/{name} 2>&1', "sh", *command])

    def pids(self, names):
        return [str(self.processes[name].pid) for name in names]

    def _received(self):
        return sum(qp["received_packets"] for program in self.host.ps()["programs"]
                   for device in program["devices"] for qp in device["qps"])

    def await_traffic(self):
        before = self._received()
        wait_until(lambda: self._received() > before, "stream_check sends nothing", PATIENCE)

    def await_end(self, names):
        """Nobody has their process ids after that. Those of a restart are children of ferryd."""
        for name in names:
            self.processes[name].wait()

    def end(self):
        for process in self.processes.values():
            subprocess.run(["kill", "-KILL", str(process.pid)], check=False, stderr=subprocess.DEVNULL)
            process.wait()


def _seconds(step):
    began = time.monotonic()
    step()
    return time.monotonic() - began


def _taken(host, command):
    """The report of a checkpoint, and when its programs stood still."""
    report = json.loads(output_of(host, [*command, "--json"], 300))
    return report, time.monotonic() - report["store_ms"] / 1e3


def _copied(store, report):
    """Seconds that dd takes for the shards of a checkpoint, into one file that is then on the disk."""
    shards = sorted(str(shard) for shard in (store / report["id"]).glob("*.zst"))
    copy = store / "copy"
    took = _seconds(lambda: subprocess.run(
        ["sh", "-c", 'to=$1; shift; cat "$@" | dd of="$to" bs=1M iflag=fullblock conv=fsync status=none', "sh", copy,
         *shards], check=True))
    copy.unlink()
    return took


def _plain_dump(host, pids):
    """Milliseconds that CRIU takes to dump programs of that size to memory, which go on."""
    folder = output_of(host, ["mktemp", "-d", "/dev/shm/bench.XXXXXX"]).strip()
    try:
        return 1e3 * sum(_seconds(lambda pid=pid: output_of(
            host, ["sh", "-c", 'mkdir "$2" && exec criu dump -t "$1" -D "$2" -o log -v0 --leave-running', "sh", pid,
                   f"{folder}/{pid}"], 120)) for pid in pids)
    finally:
        host.run(["rm", "-rf", folder])


def _rounds(contest, memory, count):
    programs = _Programs(contest, memory)
    host = programs.host
    store = pathlib.Path(tempfile.mkdtemp(prefix="ferry-bench-", dir="/var/lib"))
    result = {name: [] for name in ("standstill", "plain", "store", "dd", "image", "stored", "again",
                                  "rewritten", "restart", "reading")}
    try:
        # A lab's hosts may write to memory only, and read the disk.
        output_of(host, ["sh", "-c", 'mount --bind "$1" "$1" && mount -o remount,bind,rw "$1"', "sh", store])
        programs.start()
        for turn in range(count):
            contest.progress.step(f"checkpoint: {memory} MiB each, round {turn + 1} of {count}")
            # A directory of its own: without an earlier checkpoint all memory is written.
            fresh = store / str(turn)
            fresh.mkdir(mode=0o700)
            checkpoint = ["ferry", "checkpoint", *programs.pids(JOB), "--to", fresh]
            report, cut = _taken(host, checkpoint)
            programs.await_traffic()
            following, next_cut = _taken(host, checkpoint)
            result["again"].append(following["stored_bytes"])
            result["rewritten"].append(min(100, REWRITE * (next_cut - cut)))
            result["standstill"].append(report["standstill_ms"])
            result["plain"].append(_plain_dump(host, programs.pids(PLAIN)))
            result["store"].append(report["store_ms"] / 1e3)
            result["dd"].append(_copied(fresh, report))
            result["image"].append(report["image_bytes"])
            result["stored"].append(report["stored_bytes"])
            output_of(host, [*checkpoint, "--stop", "--keep", 1], 300)
            programs.await_end(JOB)
            verify, restart = ["ferry", "checkpoints", fresh, "verify"], ["ferry", "restart", fresh]
            result["reading"].append(_seconds(lambda command=verify: output_of(host, command, 300)))
            result["restart"].append(_seconds(lambda command=restart: output_of(host, command, 300)))
            programs.await_traffic()
            shutil.rmtree(fresh)
    finally:
        programs.end()
        host.run(["umount", store])
        shutil.rmtree(store)
    return result


def _hosts(contest, count):
    """By number of hosts, what bench/checkpoint_hosts.cc prints."""
    results = {}
    for hosts in HOSTS:
        contest.progress.step(f"checkpoint: {hosts} played hosts")
        command = [contest.lab.binaries / "checkpoint_hosts", hosts, RANKS, ROUND_TRIP, count]
        results[hosts] = json.loads(subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True,
                                                   timeout=300).stdout)
    contest.table("Ferryds of many hosts, from the first step that stops a program to the last one's end; milliseconds",
                  ["hosts", "programs", "median", "rounds", "processor time of the one that is asked"],
                  [[f"{hosts}", f"{result['programs']:,}", f"{median(result['standstill_ms']):.1f}",
                    spread(result["standstill_ms"]), f"{median(result['processor_ms']):.1f}"]
                   for hosts, result in results.items()],
                  f"Programs do nothing, and a step takes {ROUND_TRIP / 1e3} ms there and back. One process plays all "
                  "hosts, on the same processors, so this is more than on as many hosts.")
    return results


def measure(contest):
    sizes, count = ((16, 256), 2) if contest.quick else ((16, 256, 1024), 5)
    results = {memory: _rounds(contest, memory, count) for memory in sizes}
    rows = []
    for memory, result in results.items():
        rows.append([f"{memory} MiB", f"{median(result['standstill']):.0f}", spread(result["standstill"]),
                     f"{median(result['plain']):.0f}", f"{ratio(result['standstill'], result['plain']):.2f}"])
    largest = results[sizes[-1]]
    contest.headline(f"standstill of a checkpoint of two programs, {sizes[-1]:,} MiB each", "ms", largest["standstill"],
                     "plain CRIU dumps, one after the other", largest["plain"])
    contest.table("Standstill of a checkpoint of two connected programs, milliseconds",
                  ["each has", "median", "rounds", "plain CRIU", "/ plain"], rows,
                  f"{REWRITE} % of the memory rewritten a second. Plain CRIU dumps two processes of that size to "
                  "memory.", ("ms", {f"{memory} MiB": result["standstill"] for memory, result in results.items()}))
    contest.table("Until it is in the store, seconds; beside dd of the stored bytes to the same disk",
                  ["each has", "image, MB", "stored, MB", "median", "dd", "/ dd"],
                  [[f"{memory} MiB", *(f"{median(result[part]) / 1e6:,.0f}" for part in ("image", "stored")),
                    plain(median(result["store"])), plain(median(result["dd"])),
                    f"{ratio(result['store'], result['dd']):.1f}"] for memory, result in results.items()])
    contest.table("What the next checkpoint writes, MB; beside the first one",
                  ["each has", "first", "next", "/ first", "rewritten between, %"],
                  [[f"{memory} MiB", *(f"{median(result[part]) / 1e6:,.0f}" for part in ("stored", "again")),
                    f"{ratio(result['again'], result['stored']):.2f}", f"{median(result['rewritten']):.0f}"]
                   for memory, result in results.items()],
                  f"{REWRITE} % of the memory rewritten a second. Less than 16 MiB are written as a whole.")
    contest.table("Restart, seconds; beside reading all images (ferry checkpoints verify)",
                  ["each has", "median", "reading", "/ reading"],
                  [[f"{memory} MiB", plain(median(result["restart"])), plain(median(result["reading"])),
                    f"{ratio(result['restart'], result['reading']):.2f}"] for memory, result in results.items()])
    hosts = _hosts(contest, 3 if contest.quick else 15)
    return {**{str(memory): result for memory, result in results.items()}, "hosts": hosts}
