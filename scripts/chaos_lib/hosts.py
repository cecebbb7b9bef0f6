"""Hosts of the lab that break: ferryds killed and started again, hosts killed, networks cut, disks full."""

import os
import pathlib
import resource
import signal
import subprocess
import time

from demo_lib.failure import Failure

PATIENCE = 300  # seconds that anything may take that is waited for, beside other work and 5 % of loss
IMAGES = "/run/ferry/images"
RECORDS = "/var/tmp/ferry"  # of the decisions
POINTS = "/tmp/chaos"
STATES = "/run"  # of containers, in ferry/containers/
SMALL_FILE = 2048
FULL_BYTES = 65536  # what a disk that gets full still takes
TABLE = "chaos"  # nftables, of the lab's switches


def await_(what, condition, meanwhile=lambda: None):
    deadline = time.monotonic() + PATIENCE
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise Failure(f"not within {PATIENCE} s: {what}")
        meanwhile()
        time.sleep(0.02)
    return result


class FragileHost:
    """A host of the lab, with what can happen to it. mend() mends all of it, whichever move it was broken for."""

    def __init__(self, lab, host):
        self.lab, self.host, self.name = lab, host, host.name
        self._port = host.name[1:]
        self._command = self._read_command()
        host.file(POINTS).mkdir()
        # A disk of its own for images, so that it can be full.
        self._run(["mount", "-t", "tmpfs", "-o", "mode=700", "tmpfs", IMAGES])

    # ferryd

    def _pid(self):
        return int(self.host.file("/run/ferry/ferryd.pid").read_text())

    def _read_command(self):
        return [word.decode() for word in pathlib.Path(f"/proc/{self._pid()}/cmdline").read_bytes().split(b"\0")[:-1]]

    def ferryd_runs(self):
        try:
            status = pathlib.Path(f"/proc/{self._pid()}/stat").read_text()
        except OSError:
            return False
        return status[status.rindex(")") + 2] not in "ZX"  # its command line is empty for a moment while it is executed

    def kill_ferryd(self):
        if self.ferryd_runs():
            os.kill(self._pid(), signal.SIGKILL)
            await_(f"the end of ferryd on {self.name}", lambda: not self.ferryd_runs())

    def start_ferryd(self):
        if self.ferryd_runs():
            return
        self.host.file("/run/ferry/ferryd.sock").unlink(missing_ok=True)
        self._run(["sh", "-c", 'setsid "$@" >>/run/ferry/ferryd.log 2>&1 & echo $! >/run/ferry/ferryd.pid', "sh",
                   *self._command])
        await_(f"ferryd on {self.name} starts",
               lambda: not self.ferryd_runs() or self.host.file("/run/ferry/ferryd.sock").exists())
        if not self.ferryd_runs():
            raise Failure(f"ferryd on {self.name} does not start again; its log ends with: {self.log_end()}")

    def log_end(self, lines=1):
        return "\n".join(self.host.file("/run/ferry/ferryd.log").read_text(errors="replace").splitlines()[-lines:])

    # the host as a whole

    def processes(self):
        """All processes in the host's mount namespace but the one that keeps it in reach, and its helpers of here."""
        mount = os.stat(self.host.file("/").parent / "ns/mnt").st_ino
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if os.stat(entry / "ns/mnt").st_ino == mount and b"infinity" not in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def crash(self):
        """Every process of the host ends, ferryd first, so that nobody tells of it. /run is empty then, the disk is
        not."""
        self.kill_ferryd()
        while pids := self.processes():
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.01)
        self._run(["sh", "-c", 'for ns in /run/netns/*.*; do [ ! -e "$ns" ] || "$0" release "${ns##*/}"; done; '
                   f'rm -rf /run/ferry/containers/* {IMAGES}/* /run/ferry/ferryd.sock {POINTS}/*',
                   self.lab.script.parent / "network-hook"])

    # disks

    def stop_records(self):
        """What ferryd appends to its records from now on finds no room; small files of their own do."""
        size = max(file.stat().st_size for file in self.host.file(RECORDS).iterdir())
        self.limit_files(max(size, SMALL_FILE))

    def limit_files(self, size):
        """ferryd, and what it starts from now on, cannot make a file larger."""
        try:
            hard = resource.prlimit(self._pid(), resource.RLIMIT_FSIZE)[1]
            resource.prlimit(self._pid(), resource.RLIMIT_FSIZE, (size, hard))
        except ProcessLookupError:
            pass  # it is being started

    def fill(self, path):
        """No new file under the path finds room."""
        used = os.statvfs(self.host.file(path))
        size = (used.f_blocks - used.f_bfree) * used.f_frsize
        self._run(["mount", "-o", f"remount,size={size}", path])

    def leave_little(self, path):
        used = os.statvfs(self.host.file(path))
        size = (used.f_blocks - used.f_bfree) * used.f_frsize + FULL_BYTES
        self._run(["mount", "-o", f"remount,size={size}", path])

    def fill_names(self, path):
        """No file can be made under the path."""
        used = os.statvfs(self.host.file(path))
        self._run(["mount", "-o", f"remount,nr_inodes={used.f_files - used.f_ffree}", path])

    def free(self):
        for path in (IMAGES, STATES):
            self._run(["mount", "-o", "remount,size=50%,nr_inodes=100000", path])
        self.limit_files(resource.RLIM_INFINITY)

    # the network

    def cut(self):
        ports = ", ".join(f'"{kind}{self._port}"' for kind in "hrm")
        self.lab.fabric(["nft", "-f", "-"], f"""table bridge {TABLE}_{self.name} {{
            chain forward {{ type filter hook forward priority 0;
              iifname {{ {ports} }} drop
              oifname {{ {ports} }} drop
            }}
          }}""")

    def join(self):
        self.lab.fabric(["nft", "-f", "-"], f"add table bridge {TABLE}_{self.name}\n"
                                            f"delete table bridge {TABLE}_{self.name}")

    # all of it

    def mend(self):
        self.join()
        self.free()
        self.start_ferryd()

    # points of CRIU's work

    def arm(self, point):
        self.host.file(f"{POINTS}/{point}").touch()

    def disarm(self, point):
        for suffix in ("", ".answer"):
            self.host.file(f"{POINTS}/{point}{suffix}").unlink(missing_ok=True)

    def reached(self, point):
        return self.host.file(f"{POINTS}/{point}.reached").exists()

    def answer(self, point, text):
        file = self.host.file(f"{POINTS}/{point}.answer")
        fresh = file.with_suffix(".new")
        fresh.write_text(text + "\n")
        fresh.rename(file)

    def _run(self, argv):
        status, _, error = self.host.run(argv)
        if status != 0:
            raise Failure(f"{argv[0]} on {self.name} failed: {error.strip()}")


def add_fabric(lab):
    """Gives the lab a way into the network namespace of its switches."""
    def fabric(argv, text):
        done = subprocess.run(["nsenter", f"--net=/run/ferry-lab/{lab.name}/ns/fabric.net", *argv], input=text,
                              text=True, capture_output=True)
        if done.returncode != 0:
            raise Failure(f"{argv[0]} in the lab's network failed: {done.stderr.strip()}")
    lab.fabric = fabric
