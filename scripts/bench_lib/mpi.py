"""Open MPI with four ranks on two hosts: over Ferry (UCX over RC) beside its own TCP transport."""

import json
import os
import re

from demo_lib.build import REPOSITORY
from demo_lib.failure import Failure
from demo_lib.lab import last_line

from .figures import median, plain, ratio, spread

PROGRAMS = REPOSITORY / "tests/programs"
RANKS = ("--mca", "oob_tcp_if_include", "10.77.0.0/16", "--mca", "mpi_yield_when_idle", "1", "-H", "h1:2,h2:2",
         "--map-by", "node", "-x", "OPENBLAS_NUM_THREADS=1")
# No rank uses shared memory: all of it goes over the network that is measured.
OVER = {
    "Ferry": ("--mca", "pml", "ucx", "--mca", "osc", "ucx", "--mca", "btl", "self", "--mca", "pml_ucx_tls", "any",
              "--mca", "pml_ucx_devices", "any", "-x", "UCX_NET_DEVICES=ferry0:1", "-x",
              "UCX_TLS=rc_verbs,ud_verbs,self", "-x", "FERRY_NETDEV=rdma", "-x", "UCX_RNDV_THRESH=64k", "-x",
              "UCX_RNDV_SCHEME=put_zcopy", "-x", "UCX_RC_VERBS_SEG_SIZE=64k", "-x", "UCX_RC_VERBS_RX_QUEUE_LEN=512"),
    "TCP": ("--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "10.78.0.0/16"),
}
# hpcc's own names in its summary, and whether more is better.
HPCC = {"MaxPingPongLatency_usec": False, "NaturallyOrderedRingLatency_usec": False,
        "RandomlyOrderedRingLatency_usec": False, "MinPingPongBandwidth_GBytes": True,
        "NaturallyOrderedRingBandwidth_GBytes": True, "RandomlyOrderedRingBandwidth_GBytes": True}


def _launched(contest, over, program):
    library = ["-x", f"LD_PRELOAD={(contest.lab.binaries / 'libferry.so').resolve()}"] if over == "Ferry" else []
    launcher = ["env", f"LAB_OUTSIDE={os.getpid()}", f"FERRY_LAB={contest.lab.name}",
                f"FERRY_BIN={contest.lab.binaries}", "sh", "-c", 'cd /tmp && exec "$@"', "sh", "mpirun.openmpi",
                "--allow-run-as-root", "--mca", "plm_rsh_agent", PROGRAMS / "rsh_agent"]
    status, out, error = contest.server_host.run([*launcher, *RANKS, *OVER[over], *library, *program], timeout=300)
    if status != 0:
        raise Failure(f"{program[0]} over {over} failed (exit status {status}): {last_line(error or out)}")
    return out


def _allreduce(contest, over):
    """{bytes: median of an MPI_Allreduce, microseconds}"""
    quick = ["--quick"] if contest.quick else []
    out = _launched(contest, over, [contest.lab.binaries / "allreduce_openmpi", *quick])
    return {int(size): us for size, us in json.loads(last_line(out)).items()}


def _hpcc(contest, over):
    given, summary = contest.server_host.file("/tmp/hpccinf.txt"), contest.server_host.file("/tmp/hpccoutf.txt")
    given.write_bytes((PROGRAMS / "hpccinf.txt").read_bytes())
    summary.unlink(missing_ok=True)
    _launched(contest, over, ["hpcc"])
    text = summary.read_text()
    found = {name: re.search(rf"^{name}=([\d.eE+-]+)", text, re.MULTILINE) for name in HPCC}
    if None in found.values():
        raise Failure(f"hpcc over {over} wrote no summary: {last_line(text)}")
    return {name: float(match[1]) for name, match in found.items()}


def measure(contest):
    count = 2 if contest.quick else 5
    reduced = contest.rounds("allreduce", count, {over: lambda over=over: _allreduce(contest, over) for over in OVER})
    rows = []
    for size in reduced["Ferry"][0]:
        ours, theirs = ([run[size] for run in reduced[over]] for over in ("Ferry", "TCP"))
        rows.append([f"{size:,}", f"{median(ours):,.0f}", spread(ours), f"{median(theirs):,.0f}", spread(theirs),
                     f"{ratio(theirs, ours):.2f}"])
    for size in (min(reduced["Ferry"][0]), max(reduced["Ferry"][0])):
        ours, theirs = ([run[size] for run in reduced[over]] for over in ("Ferry", "TCP"))
        contest.headline(f"MPI_Allreduce of {size:,} bytes, 4 ranks", "µs", ours, "Open MPI over TCP", theirs)
    contest.table("MPI_Allreduce over 4 ranks on 2 hosts, microseconds",
                  ["bytes", "Ferry", "rounds", "TCP", "rounds", "times faster than TCP"], rows)
    ran = contest.rounds("hpcc", count, {over: lambda over=over: _hpcc(contest, over) for over in OVER})
    rows = []
    for name, more_is_better in HPCC.items():
        ours, theirs = ([run[name] for run in ran[over]] for over in ("Ferry", "TCP"))
        better = ratio(ours, theirs) if more_is_better else ratio(theirs, ours)
        rows.append([name, plain(median(ours)), spread(ours), plain(median(theirs)), spread(theirs),
                     f"{better:.2f}"])
    contest.table("hpcc, latency and bandwidth", ["", "Ferry", "rounds", "TCP", "rounds", "times better than TCP"],
                  rows)
    return {"allreduce": reduced, "hpcc": ran}
