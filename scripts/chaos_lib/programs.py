"""The programs that are moved: pairs of stream_check, and an MPI job."""

import json
import os
import pathlib
import re
import signal
import subprocess
import time

from demo_lib.failure import Failure
from demo_lib.lab import Container, last_line
from demo_lib.traffic import await_listener

from .hosts import PATIENCE, await_

FIRST_PORT = 18600
# Of QPs, eight times: longer than any fault takes, also on a busy machine.
ACK_TIMEOUT = 19  # 2.1 s; ibv_qp_attr::timeout
UCX_TIMEOUT = "2s"
GOES_ON = 20  # packets that a program receives after what was done with it
UNKNOWN_STATUS = 255  # how a program ended whose ferryd was killed, where the kernel does not tell


class Program:
    """A container, and where it is."""

    def __init__(self, lab, job, container, executable, mark):
        self._lab, self.job, self.container, self.name = lab, job, container, container.name
        self._executable, self._mark = executable, mark
        self.busy = False  # it is being moved

    @property
    def host(self):
        return self.container.host

    def processes(self):
        """Its processes on all hosts: `mark` tells them from others of the same executable, in argv or environment."""
        hosts = {os.stat(f"/proc/{host.pid}/ns/mnt").st_ino for host in self._lab.hosts}
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                argv = (entry / "cmdline").read_bytes().split(b"\0")
                if os.path.basename(argv[0].decode()) == self._executable and (
                        os.stat(entry / "ns/mnt").st_ino in hosts) and (
                        self._mark in argv + (entry / "environ").read_bytes().split(b"\0")):
                    found.append(int(entry.name))
            except (OSError, UnicodeDecodeError):
                continue
        return found

    def received(self):
        """Packets that its QPs have received."""
        return sum(qp["received_packets"] for qp in self.container.qps())


def places(program, hosts):
    """The FragileHosts on which it runs; None while that is not clear."""
    if len(program.processes()) > 1:
        return None
    running = []
    for host in hosts:
        if not host.ferryd_runs():
            return None
        try:
            entries = [entry for entry in host.host.ps()["programs"]
                       if entry["container"] == program.name or entry["name"] == program.name]
            config = host.host.file(f"/run/ferry/containers/{program.name}/config.json")
            state = re.search(r'"state": *"(\w+)"', config.read_text())
        except Failure:
            return None  # it is being started
        except OSError:
            state = None
        if any(entry["state"] in ("moving", "arriving", "in doubt", "does not answer") for entry in entries):
            return None
        if state and state[1] == "running" and any(entry["devices"] for entry in entries):
            running.append(host)
    return running


def await_traffic(program, what):
    base = None

    def goes_on():
        nonlocal base
        if problem := program.job.ended_early():
            raise Failure(problem)
        try:
            received = program.received()
        except Failure:
            return False  # what is done beside this has killed the ferryd here
        base = received if base is None else base
        return received >= base + GOES_ON
    await_(f"{what}: {program.name} goes on on {program.host.name}", goes_on)


class Job:
    """Programs that belong together. `programs` are the containers that can be moved."""

    def __init__(self):
        self.programs = []

    def ended_early(self):
        """Why it cannot be going on, or nothing."""
        raise NotImplementedError

    def kill(self, number):
        for program in self.programs:
            for pid in program.processes():
                os.kill(pid, number)

    def finish(self):
        """Ends it, checks its results, and returns counts: a dictionary with `problems`, a list."""
        raise NotImplementedError


class StreamPair(Job):
    def __init__(self, lab, number, server_host, client_host, loss, seed, options, run_options=()):
        super().__init__()
        self.name = f"stream_check {number}"
        port = FIRST_PORT + number

        def command(side):
            return ["env", f"CHAOS={side}{number}", f"FERRY_FAULT_LOSS={loss}", f"FERRY_FAULT_SEED={seed}", "ferry",
                    "run", "--netdev", "rdma0", *run_options, "--", lab.binaries / "stream_check", "--json", "--events",
                    "--progress", "--timeout", ACK_TIMEOUT]

        server = lab.run(server_host, f"server{number}", [*command("server"), "--listen", port])
        await_listener(server, port)
        client = lab.run(client_host, f"client{number}",
                         [*command("client"), "--port", port, "--seconds", 0, *options, server.address])
        self.programs = [Program(lab, self, container, "stream_check", f"CHAOS={container.name}".encode())
                         for container in (server, client)]
        await_(f"{self.name} sends", lambda: self.ended_early() or all(each.received() > 0 for each in self.programs))

    def ended_early(self):
        for program in self.programs:
            if (status := program.container.exit_status()) is not None:
                return (f"{program.name} ended with status {status} on {program.host.name}: "
                        f"{last_line(program.container.log())}")
        return None

    def finish(self):
        server, client = self.programs
        client.container.signal(signal.SIGTERM)
        counts = {"checked": 0, "lost": 0, "duplicated": 0, "corrupted": 0, "out_of_order": 0, "problems": []}
        for program in (client, server):
            status = program.container.wait(PATIENCE)
            log = program.container.log()
            begin = log.find('{"role"')
            if begin < 0:
                counts["problems"].append(f"{program.name} ended with status {status} and no report: {last_line(log)}")
                continue
            report = json.JSONDecoder().raw_decode(log[begin:])[0]
            counts["checked"] += report["messages_received"]
            for kind in ("lost", "duplicated", "corrupted", "out_of_order"):
                counts[kind] = max(counts[kind], report[f"messages_{kind}"])  # both sides judge both directions
            if report["result"] != "ok" or status not in (0, UNKNOWN_STATUS):
                counts["problems"].append(
                    f"{program.name} ended with status {status}: {'; '.join(report['faults'][:3]) or report['result']}")
        return counts


class MpiJob(Job):
    """mpi_check over MPICH, a rank to each container; the launcher stays on the first host."""

    def __init__(self, lab, hosts, loss, seed):
        super().__init__()
        self.name = "mpi_check"
        nodes = [f"rank{number}-{host.name}" for number, host in enumerate(hosts)]
        library = lab.binaries / "libferry.so"
        agent = lab.script.parent.parent / "tests/programs/container_agent"
        environment = {"LD_PRELOAD": library, "FERRY_NETDEV": "rdma0", "UCX_NET_DEVICES": "ferry0:1",
                       "UCX_RC_TIMEOUT": UCX_TIMEOUT,
                       "UCX_TLS": "rc_verbs,ud_verbs,self", "MPIR_CVAR_NOLOCAL": 1, "FERRY_FAULT_LOSS": loss,
                       "FERRY_FAULT_SEED": seed}
        options = [word for name, value in environment.items() for word in ("-genv", name, value)]
        self._output = hosts[0].file("/tmp/ranks")
        command = ["mpiexec.hydra", "-launcher", "rsh", "-launcher-exec", agent, "-iface", "br0",
                   "-hosts", ",".join(f"{node}:1" for node in nodes), *options, "-n", len(nodes),
                   lab.binaries / "mpi_check_mpich", 10 ** 6]
        with open(self._output, "wb") as output:
            self._launcher = hosts[0].start(
                ["env", "-C", "/tmp", f"FERRY_LAB={lab.name}", f"FERRY_BIN={lab.binaries}",
                 f"LAB_OUTSIDE={os.getpid()}", *command], stdout=output, stderr=subprocess.STDOUT)
        self.programs = [Program(lab, self, Container(lab, node, host, []), "mpi_check_mpich",
                                 f"PMI_RANK={rank}".encode()) for rank, (node, host) in enumerate(zip(nodes, hosts))]
        await_("mpi_check's first round", lambda: self.ended_early() or "\nround 1\n" in "\n" + self._text())

    def _text(self):
        return self._output.read_text(errors="replace")

    def ended_early(self):
        if self._launcher.poll() is None:
            return None
        return f"mpi_check's launcher ended with status {self._launcher.returncode}: {last_line(self._text())}"

    def finish(self):
        for pid in self.programs[0].processes():
            os.kill(pid, signal.SIGUSR1)
        counts = {"rounds": 0, "bytes": 0, "problems": []}
        deadline = time.monotonic() + PATIENCE
        while self._launcher.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        text = self._text()
        verdict = re.search(r"^mpi_check: (\d+) rounds, (\d+) bytes .* no errors", text, re.M)
        if self._launcher.poll() != 0 or not verdict:
            counts["problems"].append(f"mpi_check: launcher's status {self._launcher.poll()}: {last_line(text)}")
        else:
            counts["rounds"], counts["bytes"] = int(verdict[1]), int(verdict[2])
        return counts
