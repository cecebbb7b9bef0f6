"""The lab (lab/lab) for Python: hosts, containers, commands on hosts, moves."""

import datetime
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

from .failure import Failure


class Host:
    """A host of the lab. A process that does nothing keeps its namespaces in reach, so that files can be read and
    commands started without the lab's own start-up time."""

    def __init__(self, lab, name):
        self.name = name
        self._path = f"{lab.binaries}:/opt/ferry/bin:{os.environ.get('PATH', '/usr/sbin:/usr/bin:/sbin:/bin')}"
        self._holder = subprocess.Popen([lab.script, "exec", name, "--", "sh", "-c", "echo $$; exec sleep infinity"],
                                        env=lab.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, start_new_session=True)
        line = self._holder.stdout.readline()
        if not line.strip().isdigit():
            raise Failure(f"cannot start a process on {name} of the lab; see: {lab.script} exec {name} -- true")
        self.pid = int(line)

    def enter(self, argv):
        """argv, to be started from here in the host's namespaces, with the PATH of here."""
        return ["nsenter", f"--target={self.pid}", "--mount", "--net", "--uts", "--ipc", *map(str, argv)]

    def command(self, argv):
        """The same, with Ferry's tools in PATH."""
        return self.enter(["env", f"PATH={self._path}", *argv])

    def run(self, argv, timeout=60):
        """Runs to the end; (exit status, stdout, stderr)."""
        try:
            done = subprocess.run(self.command(argv), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  errors="replace", timeout=timeout, start_new_session=True)
        except subprocess.TimeoutExpired as late:
            raise Failure(f"{' '.join(map(str, argv))} on {self.name} did not end within {timeout:.0f} s") from late
        return done.returncode, done.stdout, done.stderr

    def start(self, argv, **options):
        return subprocess.Popen(self.command(argv), stdin=subprocess.DEVNULL, start_new_session=True, **options)

    def file(self, path):
        """A file of the host, as a path of this machine."""
        return pathlib.Path(f"/proc/{self.pid}/root{path}")

    def ps(self):
        """What `ferry ps --json` says here."""
        status, out, error = self.run(["ferry", "ps", "--json"])
        if status != 0:
            raise Failure(f"ferry ps on {self.name} failed: {_first_line(error)}")
        return json.loads(out)

    def release(self):
        self._holder.kill()
        self._holder.wait()


class Container:
    def __init__(self, lab, name, host, command):
        self.lab, self.name, self.host, self.command = lab, name, host, command
        self._to = None  # the host to which it is being moved

    def _file(self, name, host=None):
        return (host or self.host).file(f"/run/ferry/containers/{self.name}/{name}")

    def config(self, host=None):
        return json.loads(self._file("config.json", host).read_text())

    @property
    def address(self):
        """Of eth0; it moves along."""
        return self.config()["eth0"]["address"]

    def counters(self):
        """Bytes that rdma0 received and sent where the program is now; None while it is between two hosts."""
        for host in (self._to, self.host):  # before the command says that it has moved, it may have
            try:
                config = self.config(host) if host else {"state": ""}
                if config["state"] != "running" or config["pid"] <= 0:
                    continue
                for line in pathlib.Path(f"/proc/{config['pid']}/net/dev").read_text().splitlines():
                    name, _, values = line.partition(":")
                    if name.strip() == "rdma0":
                        fields = values.split()
                        return int(fields[0]), int(fields[8])
            except (OSError, ValueError, KeyError):
                pass
        return None

    def qps(self):
        """Its queue pairs, as `ferry ps --json` of its host shows them."""
        return [qp for program in self.host.ps()["programs"] if program["container"] == self.name
                for device in program["devices"] for qp in device["qps"]]

    def listens(self, port):
        """True when a TCP socket listens on the port."""
        try:
            tables = "".join(pathlib.Path(f"/proc/{self.config()['pid']}/net/{table}").read_text()
                             for table in ("tcp", "tcp6"))
        except OSError:
            return False
        return re.search(rf":{port:04X} [0-9A-F]+:0000 0A ", tables) is not None

    def log_bytes(self, offset=0):
        """What the program printed so far, from `offset` on; the log moves along."""
        try:
            with open(self._file("log"), "rb") as file:
                file.seek(offset)
                return file.read()
        except OSError:
            return b""

    def log(self):
        return self.log_bytes().decode(errors="replace")

    def exit_status(self):
        """None while it runs."""
        try:
            return int(self._file("exit").read_text())
        except (OSError, ValueError):
            return None

    def wait(self, timeout, meanwhile=lambda: None):
        """The exit status; Failure when it has none in time."""
        deadline = time.monotonic() + timeout
        while (status := self.exit_status()) is None:
            if time.monotonic() > deadline:
                raise Failure(f"{self.name} still runs on {self.host.name} after {timeout:.0f} s; its output ends "
                              f"with: {last_line(self.log())}")
            meanwhile()
            time.sleep(0.05)
        return status

    def signal(self, number):
        """To the container's init, which passes it on to the program; nothing when that has ended."""
        pid = self.config()["pid"]
        try:
            if pid > 0:
                os.kill(pid, number)
        except ProcessLookupError:
            pass

    def move(self, to, *options, timeout=120):
        """Moves it with `ferry move`; its report, with the wall-clock times of begin and end as `began`, `ended`, and
        of each step as `steps`: [(step, time)]."""
        began = time.time()
        self._to = to
        status, out, error = self.host.run(["ferry", "move", self.name, "--to", to.name, "--json", "--events",
                                           *options], timeout)
        ended = time.time()
        events = [json.loads(line) for line in error.splitlines() if line.startswith("{")]
        error = "\n".join(line for line in error.splitlines() if not line.startswith("{"))
        if status != 0:
            raise Failure(f"moving {self.name} from {self.host.name} to {to.name} failed: {_first_line(error or out)}")
        try:
            report = json.loads(out)
        except ValueError as bad:
            raise Failure(f"ferry move printed no JSON: {_first_line(out)}") from bad
        self.host, self._to = to, None
        steps = [(event["phase"], datetime.datetime.fromisoformat(event["time"]).timestamp()) for event in events]
        return report | {"began": began, "ended": ended, "steps": steps}


class Lab:
    """`with Lab(...)`: hosts h1 to hN are up inside, and removed behind, whatever happens (unless keep is set)."""

    def __init__(self, repository, binaries, name, hosts, keep=False, environment=None):
        self.script = repository / "lab/lab"
        self.binaries = binaries
        self.name, self.count, self.keep = name, hosts, keep
        self.environment = os.environ | {"FERRY_LAB": name, "FERRY_BIN": str(binaries)} | (environment or {})
        self.hosts = []

    def __enter__(self):
        try:
            self._lab("up", str(self.count))
        except KeyboardInterrupt:
            self._lab("down")
            raise
        try:
            self.hosts = [Host(self, f"h{k}") for k in range(1, self.count + 1)]
            for host in self.hosts:
                self._await_ferryd(host)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for host in self.hosts:
            host.release()
        if not self.keep:
            self._lab("down")

    def host(self, number):
        return self.hosts[number - 1]

    def run(self, host, name, argv):
        """Starts a program in a container of its own."""
        self._lab("run", host.name, name, "-d", "--", *map(str, argv))
        return Container(self, name, host, argv)

    def _await_ferryd(self, host):
        deadline = time.monotonic() + 60
        while True:
            status, _, error = host.run(["ferry", "ps", "--json"])
            if status == 0:
                return
            if time.monotonic() > deadline:
                raise Failure(f"ferryd does not answer on {host.name}: {_first_line(error)}")
            time.sleep(0.05)

    def _lab(self, *arguments):
        # A file, not a pipe: what the lab leaves running would hold a pipe open.
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            status = subprocess.run([self.script, *arguments], env=self.environment, stdin=subprocess.DEVNULL,
                                    stdout=output, stderr=output, start_new_session=True).returncode
            if status != 0:
                output.seek(0)
                raise Failure(f"lab {arguments[0]} failed: {_first_line(output.read())}")


def _first_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return re.sub(r"^ferry( lab)?: ", "", lines[0]) if lines else "(no output)"


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "(nothing)"
