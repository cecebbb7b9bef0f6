"""The two pairs of programs that the demo moves: ib_send_bw and stream_check."""

import json
import re
import signal
import statistics
import threading
import time

from .failure import Failure
from .lab import last_line

SAMPLE_SECONDS = 0.005
MESSAGE = 65536  # bytes per message of ib_send_bw
MTU = 4096
DEPTH = 1024  # enough to keep the RNIC busy while the program waits for its turn on a processor
LIMIT = 3600  # seconds; it is ended before
_PACKETS = MESSAGE // MTU
_PSNS = 1 << 24


# How long a step of a curve may be, so that a blackout is not lost in it, and how far rates between moves may be from
# their median.
_STEPS, _NOISE = (0.05, 0.1, 0.2), 0.1


class Pair:
    """A client and a server. Subclasses count completions and make the series."""

    program = ""

    def __init__(self):
        self.client = self.server = None

    def container(self, role):
        return self.client if role == "client" else self.server

    def peer(self, role):
        return self.server if role == "client" else self.client

    def retransmitted(self):
        """Packets that both sides sent again, since they run."""
        return sum(qp["retransmitted_packets"] for role in ("client", "server") for qp in self.container(role).qps())

    def calm_series(self, begin, end, moves):
        """(seconds of a bin, series()): the shortest bins whose rates outside of moves are close to each other."""
        for step in _STEPS:
            series = self.series(begin, end, step)
            rates = [rate for time_, rate in series
                     if not any(move["began"] - begin - step < time_ < move["ended"] - begin + step for move in moves)]
            usual = statistics.median(rates) if rates else 0
            if rates and statistics.median(abs(rate - usual) for rate in rates) <= _NOISE * usual:
                break
        return step, series

    def check_running(self):
        for role in ("server", "client"):
            status = self.container(role).exit_status()
            if status is not None:
                raise Failure(f"{self.program}'s {role} ended early, with exit status {status}; its output ends with: "
                              f"{last_line(self.container(role).log())}")


class Perftest(Pair):
    """ib_send_bw, SENDs of 64 KiB, both ways."""

    program = "ib_send_bw"

    def __init__(self, lab, server_host, client_host):
        super().__init__()
        # A timeout of 1 s (-u 18): on a busy machine a peer may be kept from its processor for long.
        options = ["ferry", "run", "--", "ib_send_bw", "-b", "-F", "-N", "-u", 18, "-D", LIMIT, "-s", MESSAGE,
                   "-m", MTU, "-t", DEPTH, "-r", DEPTH, "--report_gbits"]
        self.server = lab.run(server_host, "perf-server", options)
        await_listener(self.server, 18515)
        self.client = lab.run(client_host, "perf-client", [*options, self.server.address])
        self._psn, self._packets = None, 0
        self._samples = []
        self._sampling = threading.Event()
        self._thread = None

    def next_phase(self):
        """SIGALRM is the program's own clock: it leads from warming up to measuring, to cooling down, to the end.
        Returns whether a side still runs."""
        running = [each for each in (self.client, self.server) if each.exit_status() is None]
        for container in running:
            container.signal(signal.SIGALRM)
        return bool(running)

    def stop(self, timeout):
        """Ends both sides, however far their own clock (-D) is, and waits for that."""
        deadline = time.monotonic() + timeout
        while self.next_phase():
            if time.monotonic() > deadline:
                raise Failure(f"ib_send_bw does not end; its output ends with: {last_line(self.report())}")
            time.sleep(1)

    def completions(self):
        """Messages that have arrived whole: by the PSN that the server expects next, which counts nothing twice."""
        qps = self.server.qps()
        if len(qps) == 1:
            psn = qps[0]["expected_psn"]
            if self._psn is not None:
                self._packets += (psn - self._psn) % _PSNS
            self._psn = psn
        return self._packets // _PACKETS

    def sample(self):
        """Begins to record the throughput at the server's network interface."""
        self._sampling.set()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop_sampling(self):
        self._sampling.clear()
        self._thread.join()

    def _sample(self):
        while self._sampling.is_set():
            counters = self.server.counters()
            self._samples.append((time.time(), counters[0] if counters else None))
            time.sleep(SAMPLE_SECONDS)

    def series(self, begin, end, bin_seconds):
        """(seconds since begin, Gbit/s) per bin."""
        bins = [0.0] * max(int((end - begin) / bin_seconds), 1)
        for (t0, b0), (t1, b1) in zip(self._samples, self._samples[1:]):
            if b0 is None or b1 is None or b1 < b0:  # between two hosts, or new counters behind a move
                continue
            # Spread evenly over the bins that the two samples reach.
            time_, rate = t0, (b1 - b0) / (t1 - t0)
            while time_ < t1:
                index = int((time_ - begin) / bin_seconds)
                until = min(t1, begin + (index + 1) * bin_seconds)
                until = until if until > time_ else t1
                if 0 <= index < len(bins):
                    bins[index] += rate * (until - time_)
                time_ = until
        return _gbit(bins, bin_seconds)

    def rate(self):
        """Gbit/s over the last half second."""
        known = [(t, b) for t, b in self._samples[-100:] if b is not None]
        if len(known) < 2 or known[-1][1] < known[0][1]:
            return 0.0
        return (known[-1][1] - known[0][1]) * 8 / (known[-1][0] - known[0][0]) / 1e9

    def report(self):
        return self.client.log().strip()


class StreamCheck(Pair):
    """stream_check, which checks every message; it runs until it is told to end."""

    program = "stream_check"
    port = 18600

    def __init__(self, lab, server_host, client_host):
        super().__init__()
        options = ["ferry", "run", "--", lab.binaries / "stream_check", "--json", "--series", "/dev/stderr"]
        self.server = lab.run(server_host, "stream-server", [*options, "--listen", self.port])
        await_listener(self.server, self.port)
        self.client = lab.run(client_host, "stream-client",
                              [*options, "--port", self.port, "--seconds", 0, self.server.address])
        self._offset, self._points, self._completions = 0, [], 0

    def completions(self):
        """Completions that the client saw."""
        fresh = self.client.log_bytes(self._offset)
        fresh = fresh[: fresh.rfind(b"\n") + 1]
        self._offset += len(fresh)
        for line in fresh.decode(errors="replace").splitlines():
            point = re.fullmatch(r"(\d+\.\d\d) (\d+) (\d+)", line)
            if point:
                self._points.append((float(point[1]), int(point[3])))
                self._completions += int(point[2])
        return self._completions

    def series(self, begin, end, bin_seconds):
        self.completions()
        bins = [0.0] * max(int((end - begin) / bin_seconds), 1)
        for moment, count in self._points:
            index = int((moment - begin) / bin_seconds)
            if 0 <= index < len(bins):
                bins[index] += count
        return _gbit(bins, bin_seconds)

    def rate(self):
        recent = self._points[-50:]
        span = recent[-1][0] - recent[0][0] if len(recent) > 1 else 0
        return sum(count for _, count in recent[:-1]) * 8 / span / 1e9 if span > 0 else 0.0

    def stop(self):
        self.client.signal(signal.SIGTERM)

    def report(self, role):
        """The JSON object that it printed at its end."""
        text = self.container(role).log()
        begin = text.find('{"role"')
        if begin < 0:
            raise Failure(f"stream_check's {role} printed no report; its output ends with: {last_line(text)}")
        return json.JSONDecoder().raw_decode(text[begin:])[0]


def _gbit(bins, bin_seconds):
    return [(index * bin_seconds, count * 8 / bin_seconds / 1e9) for index, count in enumerate(bins)]


def await_listener(container, port):
    """Until something listens on the TCP port, so that the client finds it."""
    deadline = time.monotonic() + 120
    while not container.listens(port):
        if container.exit_status() is not None or time.monotonic() > deadline:
            raise Failure(f"{container.name} does not listen on port {port}; its output ends with: "
                          f"{last_line(container.log())}")
        time.sleep(0.02)
