"""What Ferry adds to programs with a device of the kernel, and to their moves: rdma_rxe in three virtual machines.

QEMU computes the machines' instructions (TCG): only ratios of a run mean something."""

import contextlib
import json
import re
import subprocess
import time

from demo_lib.build import REPOSITORY
from demo_lib.failure import Failure

from . import series
from .figures import median, plain, ratio, spread

VMLAB = REPOSITORY / "scripts" / "vmlab"
NEEDED = ("ferry", "ferry-client", "ferryd", "ferry-append", "ferry-device-trial", "ferry-rootfs", "ferry-pages",
          "libferry.so", "criu-plugins", "ferry-criu-action", "ferry-criu-dump.so", "stream_check")
FOLDER = "/root/ferry"
HOSTS = ("h1", "h2", "h3")
DEVICE = ("ferry", "run", "--device", "rxe0", "--")
QPS = (1, 16, 64, 128)
IN_USE = 16
IDLE = (0, 48, 112)
PEERS = (1, 4, 16, 64)
SERIES = "/tmp/series"
STREAMS = 4
LOADS = {"as many as go": "", "50 a second": "--rate 50"}  # messages of each QP and direction
BEFORE = 5  # seconds that throughput is measured before a move
DELAY = 50  # milliseconds one way: 64 peers without a pause take the processor that ferryd needs
LIMIT = 300  # seconds of a command


class Machines:
    """h1 to h3, with rxe0 and Ferry's programs."""

    def __init__(self, binaries):
        self.binaries = binaries

    def __enter__(self):
        _run(VMLAB, "down")
        _run(VMLAB, "up", "3")
        try:
            for number, host in enumerate(HOSTS, 1):
                _run(VMLAB, "copy", *(path for name in NEEDED if (path := self.binaries / name).exists()),
                     f"{host}:{FOLDER}")
                self.run(host, f"ln -sf {FOLDER}/ferry /usr/bin/ferry; modprobe rdma_rxe; "
                               "rdma link add rxe0 type rxe netdev eth0; "
                               f"nohup {FOLDER}/ferryd --insecure --listen 10.79.0.{number}:4780 "
                               ">/tmp/ferryd.log 2>&1 </dev/null &")
        except BaseException:
            _run(VMLAB, "down")
            raise
        return self

    def __exit__(self, *_):
        _run(VMLAB, "down")

    @staticmethod
    def run(host, script):
        """Its output."""
        return _run(VMLAB, "exec", host, "--", "bash", "--norc", "-euc", script)

    def start(self, host, command):
        self.run(host, f"cd /tmp; setsid nohup {command} >/dev/null 2>&1 </dev/null &")

    def delay(self, milliseconds):
        for host in HOSTS:
            self.run(host, f"tc qdisc replace dev eth0 root netem delay {milliseconds}ms")

    @contextlib.contextmanager
    def ending(self, name):
        """Ends these programs behind the block, and the delay as well."""
        try:
            yield
        finally:
            for host in HOSTS:
                self.run(host, f"pkill -KILL -x {name[:15]} || true; tc qdisc delete dev eth0 root 2>/dev/null || true")

    def await_port(self, host, port):
        self.run(host, f"until ss -Hltn 'sport = :{port}' | grep -q .; do sleep 0.1; done")


def _run(*command):
    try:
        result = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True,
                                text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired as error:
        raise Failure(f"{command[0]} {command[1]} does not end within {LIMIT} s: {command[-1]}") from error
    if result.returncode != 0:
        raise Failure(f"{command[0]} {command[1]} failed: {(result.stderr or result.stdout).strip()[-300:]}")
    return result.stdout


def _latency(machines, words, count):
    """Microseconds of a message there and back, with events on both sides."""
    pingpong = f"{' '.join(words)} ibv_rc_pingpong -g 1 -e -n {count}"
    machines.start("h2", pingpong)
    machines.await_port("h2", 18515)
    said = machines.run("h1", f"{pingpong} h2")
    return float(re.search(r"= ([0-9.]+) usec/iter", said).group(1))


def _moves(machines, qps, count):
    """RDMA shares of moves of a program with so many QPs, all in use, in milliseconds."""
    pingpong = f"ibv_srq_pingpong -g 1 -e -s 64 -q {qps} -r {max(qps, 500)} -n 2000000000"
    return _shares(machines, (pingpong, 18515, f"{pingpong} h2"), qps, count)


def _moves_with_idle(machines, idle, count):
    """The same, with IN_USE QPs in use and so many others."""
    check = f"{FOLDER}/stream_check --gid-index 1 --timeout 18 --apart"
    client = f"{check} h2 --qps {IN_USE} --idle {idle} --size 64 --ops send --rate 150 --messages 1000000000"
    return _shares(machines, (check, 18600, client), IN_USE + idle, count)


def _throughputs_left(machines, load, count):
    """Of the peer of a program that moves, from the prepare to the stop, as shares of that before."""
    check = f"{FOLDER}/stream_check --gid-index 1 --timeout 18 --apart"
    client = f"{check} h2 --qps {STREAMS} --size 64 --ops send {load} --messages 1000000000"

    def left(move):
        time.sleep(BEFORE)
        began = float(machines.run("h2", "date +%s.%N"))
        report = move()
        time.sleep(1)  # the peer writes its series ten times a second
        points = series.points(machines.run("h2", f"cat {SERIES}"))
        prepared, (stopped, _) = began + report["check_ms"] / 1e3, series.standstill(points, began)
        before = series.rate(points, began - BEFORE, began)
        if before == 0 or stopped <= prepared:
            raise Failure(f"nothing came before the move, or from its prepare to its stop ({report})")
        return series.rate(points, prepared, stopped) / before

    machines.run("h2", f"rm -f {SERIES}")
    return _of_moves(machines, (f"{check} --series {SERIES}", 18600, client), STREAMS, count, left)


def _rdma_share(move):
    return move()["rdma_share_ms"]


def _shares(machines, programs, qps, count):
    return _of_moves(machines, programs, qps, count, _rdma_share)


def _of_moves(machines, programs, qps, count, figure):
    """figure(move) of each move of the client; move() carries it out, and gives its report."""
    server, port, client = programs
    name = server.split()[0].rsplit("/", 1)[-1]
    with machines.ending(name):
        machines.start("h2", f"{' '.join(DEVICE)} {server}")
        machines.await_port("h2", port)
        machines.start("h1", f"{' '.join(DEVICE)} {client}")
        # A pingpong without a pause takes the processors that ferryd needs.
        machines.delay(3)
        return _of_moves_between(machines, name, qps, count, figure)


def _of_moves_between(machines, name, qps, count, figure):
    """The same of moves between h1, where the program is, and h3. Its peers are on h2."""
    machines.run("h1", f"until ferry ps --json | jq -e '[.programs[].devices[].qps[]] | length == {qps}'; "
                       "do sleep 0.2; done >/dev/null")
    time.sleep(2)
    figures = []
    for turn in range(count):
        here, there = (("h1", "h3"), ("h3", "h1"))[turn % 2]
        move = f"ferry move {name} --to {there} --json"
        figures.append(figure(lambda here=here, move=move: json.loads(machines.run(here, move))))
    return figures


def _moves_with_peers(machines, peers, count):
    """RDMA shares of moves of rping's server, each of whose peers is a process of its own."""
    for host in HOSTS:
        machines.run(host, "modprobe rdma_ucm")
    with machines.ending("rping"):
        machines.delay(DELAY)
        machines.start("h1", f"{' '.join(DEVICE)} rping -s -P -a 0.0.0.0")
        machines.run("h1", "until rdma resource show cm_id | grep -q 'state LISTEN .*comm rping'; do sleep 0.2; done")
        # One after the other: of two requests at the same moment rping's server loses one.
        machines.start("h2", f"sh -c 'for i in $(seq {peers}); do {' '.join(DEVICE)} rping -c -a 10.79.0.1 & "
                             'until test "$(rdma resource show qp | grep -c "RTS .*comm rping")" -ge "$i"; '
                             "do sleep 0.1; done; done; wait'")
        return _of_moves_between(machines, "rping", peers, count, _rdma_share)


def _attempts(contest, what, ways):
    """({name: figures} of the `ways` that could be measured, a note that says why the others could not)."""
    known = len(contest.failures)
    results = {}
    for name, way in ways.items():
        contest.progress.step(f"device: {what}, {name}")
        results[name] = contest.attempt(f"{what}, {name}", way)
    return {name: figures for name, figures in results.items() if figures}, "; ".join(contest.failures[known:])


def _table(contest, title, head, attempts, first=None, bars=None):
    """`first`: the way beside which a last column shows the others, if that one could be measured."""
    figures, note = attempts
    base = figures.get(first)
    contest.table(title, head,
                  [[name, plain(median(each)), spread(each)] +
                   ([] if first is None else [f"{ratio(each, base):.2f}" if base else "–"])
                   for name, each in figures.items()], note, bars and figures and (bars, figures))


def _measured(contest, machines, rounds, messages, moves):
    def latencies():
        return contest.rounds("device: ibv_rc_pingpong -e", rounds, {
            "the stock library": lambda: _latency(machines, (), messages),
            "ferry run --device": lambda: _latency(machines, DEVICE, messages)})

    known = len(contest.failures)
    latency = contest.attempt("ibv_rc_pingpong -e", latencies) or {}
    yield "latency", (latency, "; ".join(contest.failures[known:]))
    yield "moves", _attempts(contest, "moves with QPs", {
        str(qps): lambda qps=qps: _moves(machines, qps, moves) for qps in QPS})
    yield "idle", _attempts(contest, f"moves with {IN_USE} QPs in use and idle ones", {
        str(idle): lambda idle=idle: _moves_with_idle(machines, idle, moves) for idle in IDLE})
    yield "left", _attempts(contest, "throughput before the stop, messages", {
        name: lambda load=load: _throughputs_left(machines, load, moves) for name, load in LOADS.items()})
    yield "peers", _attempts(contest, "moves with peers", {
        str(peers): lambda peers=peers: _moves_with_peers(machines, peers, moves) for peers in PEERS})


def measure(contest):
    rounds, messages, moves = (3, 300, 2) if contest.quick else (9, 2000, 6)
    contest.progress.step("device: booting three machines")
    with Machines(contest.lab.binaries) as machines:
        attempts = dict(_measured(contest, machines, rounds, messages, moves))
    _table(contest, "A message there and back with events over rdma_rxe, microseconds",
           ["", "median", "rounds", "/ stock"], attempts["latency"], "the stock library", "us")
    _table(contest, "RDMA share of a move over rdma_rxe, all QPs in use, milliseconds", ["QPs", "median", "moves"],
           attempts["moves"])
    _table(contest, f"RDMA share of a move over rdma_rxe with {IN_USE} QPs in use, milliseconds",
           ["QPs beside them", "median", "moves", "/ none"], attempts["idle"], str(IDLE[0]))
    _table(contest, f"Throughput over rdma_rxe, {STREAMS} QPs, from the prepare of a move to its stop, / that before",
           ["messages of a QP", "median", "moves"], attempts["left"])
    _table(contest, f"RDMA share of a move over rdma_rxe, peers {2 * DELAY} ms away and back, milliseconds",
           ["peers", "median", "moves", "/ one"], attempts["peers"], str(PEERS[0]))
    return {name: figures for name, (figures, _) in attempts.items()}
