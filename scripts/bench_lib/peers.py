"""Peers that know nothing of RDMA: raw UDP, sockperf and iperf3 over TCP, a copy in memory."""

import json
import re

from demo_lib.failure import Failure
from demo_lib.lab import last_line

from .contest import FERRY, SERVER


def udp_latency(contest, size, rounds, *options):
    """Microseconds one way, both sides busy-polled without --thread: {"median", "p99", "p999", "max"}."""
    client = ["udp_pingpong", SERVER, 19000, "--size", size, "--rounds", rounds, *options]
    server = ["udp_pingpong", "--server", SERVER, 19000, *options]
    printed = json.loads(contest.pair(server, client, 19000, "udp").client)
    return {key: printed[f"{key}_us"] for key in ("median", "p99", "p999", "max")}


def tcp_latency(contest, size, *options):
    """sockperf's, microseconds one way."""
    common = ["--tcp", "-i", SERVER, "-p", 19001, *options]
    out = contest.pair(["sockperf", "server", *common],
                       ["sockperf", "ping-pong", *common, "-m", size, "-t", contest.seconds], 19001).client
    patterns = {"median": r"percentile 50\.000", "p99": r"percentile 99\.000", "p999": r"percentile 99\.900",
                "max": r"<MAX> observation"}
    found = {key: re.search(rf"{pattern}\s*=\s*([\d.]+)", out) for key, pattern in patterns.items()}
    if None in found.values():
        raise Failure(f"sockperf printed no percentiles: {last_line(out)}")
    return {key: float(match[1]) for key, match in found.items()}


def _stream(gbit_per_s, run, seconds):
    return {"gbit_per_s": gbit_per_s, "processor_seconds_per_gb": run.processor_seconds / (gbit_per_s / 8 * seconds)}


def tcp_stream(contest, pin, options):
    """iperf3's: {"gbit_per_s", "processor_seconds_per_gb"}."""
    client = ["iperf3", "-c", SERVER, "-p", 19002, "-t", contest.seconds, "-J", *options]
    run = contest.pair(["iperf3", "-s", "-1", "-B", SERVER, "-p", 19002], client, 19002, pin=pin)
    received = json.loads(run.client)["end"]["sum_received"]
    return _stream(received["bits_per_second"] / 1e9, run, received["seconds"])


def udp_stream(contest):
    """Raw UDP with GSO and GRO: what the receiver got. It polls for a second behind the stream's end, which counts as
    time of the processor."""
    run = contest.pair(["udp_stream", "--receive", SERVER, 19003],
                       ["udp_stream", SERVER, 19003, "--seconds", contest.seconds], 19003, "udp")
    return _stream(json.loads(run.server)["gbit_per_s"], run, contest.seconds)


def tcp_congestion_controls(contest):
    """Those of this kernel."""
    return contest.client_host.run(["cat", "/proc/sys/net/ipv4/tcp_available_congestion_control"])[1].split()


def ucx_over_tcp(contest, test, size, count, starter=()):
    """ucx_perftest's messages a second over UCX's own TCP transport; `starter`: what runs both sides' commands."""
    return _ucx(contest, [*starter, "env", "UCX_TLS=tcp", "UCX_NET_DEVICES=rdma"], test, size, count)


def ucx_over_ferry(contest, test, size, count, starter=()):
    """The same over RC."""
    settings = ["env", "UCX_TLS=rc_verbs,ud_verbs,self", "UCX_NET_DEVICES=ferry0:1"]
    return _ucx(contest, [*starter, *settings, *FERRY], test, size, count)


def _ucx(contest, starter, test, size, count):
    command = [*starter, "env", "UCX_WARN_UNUSED_ENV_VARS=n", "ucx_perftest"]
    client = [*command, SERVER, "-t", test, "-s", size, "-n", count, "-w", count // 10]
    out = contest.pair(command, client, 13337).client
    final = re.search(r"^Final:((?:\s+[\d.]+)+)\s*$", out, re.MULTILINE)
    if not final:
        raise Failure(f"ucx_perftest printed no result: {last_line(out)}")
    return float(final[1].split()[-1])
