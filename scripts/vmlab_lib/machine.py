"""One machine: a QEMU without KVM, its disk over the image's, and ssh into it."""

import contextlib
import json
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import time

from demo_lib.failure import Failure

from .network import BRIDGES, MTU, address

BOOT_SECONDS = 300  # a machine that is not there by then is broken; beside other work a boot takes a minute
END_SECONDS = 60  # of systemd's way down, after which the power is cut
CHECK_SECONDS = 0.2
# Machines that have just booted give the same process ids to what is started there, unlike others.
IDS_APART = 20000
# A command fails when its machine has not answered for so long; beside other work it may get no processor for a while.
SILENCE_SECONDS = 120
_BOOTED = "systemctl is-system-running --wait >/dev/null; sysctl -qw kernel.ns_last_pid={last}"
QEMU = "qemu-system-x86_64"

# What makes a boot under TCG quick: no check of what TCG has no use for, no names of interfaces by udev.
KERNEL_OPTIONS = ("root=/dev/vda rootfstype=ext4 console=ttyS0 quiet panic=-1 mitigations=off audit=0 no_timer_check "
                  "random.trust_cpu=on net.ifnames=0 systemd.show_status=0 systemd.unit=multi-user.target")


class Machine:
    def __init__(self, folder, number, image, network):
        """`folder`: of this machine's files; `number`: K of hK; `network`: a Network."""
        self.name = f"h{number}"
        self._folder = folder
        self._number = number
        self._image = image
        self._network = network

    # its life

    def make(self, memory, processors):
        self._folder.mkdir(parents=True)
        result = subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", self._image.disk,
                                 self._folder / "disk"], capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise Failure(f"cannot make the disk of {self.name}: {result.stderr.strip()}")
        taps = self._network.add_taps(self.name)
        (self._folder / "command").write_text(shlex.join(map(str, self._command(memory, processors, taps))),
                                              encoding="utf-8")

    def start(self):
        with open(self._folder / "qemu.log", "w", encoding="utf-8") as log:
            process = subprocess.Popen(shlex.split((self._folder / "command").read_text(encoding="utf-8")),
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                       start_new_session=True)
        (self._folder / "pid").write_text(f"{process.pid} {_start_time(process.pid)}", encoding="utf-8")

    def runs(self):
        return self._pid() is not None

    def wait_for_boot(self):
        """Until somebody can log in and systemd has started all that it starts."""
        deadline = time.monotonic() + BOOT_SECONDS
        while True:
            if not self.runs():
                raise Failure(f"{self.name} has ended while it booted: {self._end_of('qemu.log', 'console')}")
            if self._ssh([_BOOTED.format(last=self._number * IDS_APART)], quiet=True).returncode == 0:
                return
            if time.monotonic() > deadline:
                raise Failure(f"{self.name} did not boot within {BOOT_SECONDS} s: {self._end_of('console')}")
            time.sleep(CHECK_SECONDS)

    def reboot(self, hard):
        """Down and up again. `hard`: the power is cut, and what is in no file system's journal is lost."""
        if hard:
            self._kill()
        else:
            self._ssh(["systemctl poweroff"], quiet=True)
            self._wait_for_end()
        self._close_ssh()
        self.start()
        self.wait_for_boot()

    def remove(self):
        self._kill()
        self._close_ssh()
        shutil.rmtree(self._folder, ignore_errors=True)

    # what is done in it

    def execute(self, command):
        """Runs a command there, with this process's input and output. Returns its exit status."""
        return self._ssh([shlex.join(command)]).returncode

    def copy(self, files, folder):
        """Copies files of this machine into a folder there."""
        tar = subprocess.Popen(["tar", "-c", *(word for file in files for word in
                                               ("-C", file.parent.resolve(), file.name))], stdout=subprocess.PIPE)
        where = shlex.quote(folder)
        result = self._ssh([f"mkdir -p {where} && tar -x --no-same-owner -C {where}"], stdin=tar.stdout)
        if tar.wait() != 0 or result.returncode != 0:
            raise Failure(f"cannot copy {', '.join(map(str, files))} to {self.name}")

    def console(self):
        return self._folder / "console"

    # QEMU

    def _command(self, memory, processors, taps):
        folder, number = self._folder, self._number
        devices = []
        for index, (tap, bridge) in enumerate(zip(taps, BRIDGES)):
            # Hot-pluggable, and with checksums made in the machine: rdma_rxe's would be wrong otherwise.
            devices += ["-device", f"pcie-root-port,id=port{index},chassis={index + 1},slot={index + 1}",
                        "-netdev", f"tap,id={bridge},ifname={tap},script=no,downscript=no,vnet_hdr=off",
                        "-device", f"virtio-net-pci,netdev={bridge},id=nic-{bridge},bus=port{index},"
                                   f"mac=52:54:00:79:{index:02x}:{number:02x},csum=off,guest_csum=off,host_mtu={MTU}"]
        addresses = " ".join(f"ip={address(number, bridge)}:::255.255.255.0:{self.name}:eth{index}:none"
                             for index, bridge in enumerate(BRIDGES))
        return [*self._network.enter, QEMU, "-name", self.name, "-M", "q35", "-accel", "tcg,thread=multi",
                # The second processor is never plugged in. Where there can be one alone, QEMU 7.2 leaves out the memory
                # barriers and locked instructions of what the machine executes; its other threads, which work on the
                # rings of virtio devices, miss what the machine has put there, and an interface stands still for ever.
                "-cpu", "max", "-smp", f"{processors},maxcpus={processors + 1}", "-m", memory,
                "-nodefaults", "-no-user-config", "-display", "none",
                "-no-reboot", "-kernel", self._image.kernel, "-initrd", self._image.initrd,
                "-append", f"{KERNEL_OPTIONS} systemd.hostname={self.name} {addresses}",
                "-drive", f"id=disk,if=none,format=qcow2,cache=writeback,file={folder / 'disk'}",
                "-device", "virtio-blk-pci,drive=disk", "-device", "virtio-rng-pci",
                "-qmp", f"unix:{folder / 'qmp'},server=on,wait=off", "-serial", f"file:{folder / 'console'}",
                *devices]

    def _pid(self):
        """The process id of its QEMU while that runs: the start time tells it from a later process of that number."""
        try:
            pid, started = map(int, (self._folder / "pid").read_text(encoding="utf-8").split())
        except (OSError, ValueError):
            return None
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        return pid if _start_time(pid) == started else None

    def _kill(self):
        pid = self._pid()
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            while self._pid() is not None:
                time.sleep(0.01)

    def _wait_for_end(self):
        deadline = time.monotonic() + END_SECONDS
        while self.runs() and time.monotonic() < deadline:
            time.sleep(CHECK_SECONDS)
        self._kill()

    def query(self, command, **arguments):
        """Sends a command to QEMU's monitor (QMP), and returns the answer."""
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.connect(str(self._folder / "qmp"))
            stream = monitor.makefile("rw", encoding="utf-8")
            stream.readline()  # the greeting
            for line in ({"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}):
                stream.write(json.dumps(line) + "\n")
                stream.flush()
                while "event" in (answer := json.loads(stream.readline())):
                    pass
        if "error" in answer:
            raise Failure(f"QEMU of {self.name} refuses {command}: {answer['error']['desc']}")
        return answer["return"]

    def _end_of(self, *names):
        """The last lines of the first of these files that has any."""
        for name in names:
            with contextlib.suppress(OSError):
                lines = (self._folder / name).read_text(encoding="utf-8", errors="replace").split("\n")
                last = [line.strip() for line in lines if line.strip()][-3:]
                if last:
                    return " / ".join(last)
        return "it said nothing"

    # ssh, whose connection is kept for the commands that follow

    def _options(self):
        return ["-q", "-i", self._image.key, "-o", f"UserKnownHostsFile={self._image.known_hosts}",
                "-o", f"HostKeyAlias={self.name}", "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes",
                "-o", "IdentitiesOnly=yes", "-o", "ConnectTimeout=5",
                "-o", "ServerAliveInterval=10", "-o", f"ServerAliveCountMax={SILENCE_SECONDS // 10}",
                "-o", "ControlMaster=auto", "-o", "ControlPersist=yes", "-o", f"ControlPath={self._folder / 'ssh'}"]

    def _ssh(self, command, quiet=False, **options):
        if quiet:
            options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.run([*self._network.enter, "ssh", *self._options(), f"root@{address(self._number, 'reach')}",
                               "--", *command], check=False, **options)

    def _close_ssh(self):
        subprocess.run(["ssh", *self._options(), "-O", "exit", self.name], check=False, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _start_time(pid):
    try:
        status = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        threads = len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return None
    fields = status[status.rindex(")") + 2:].split()
    # While the first thread alone has ended, the others hold what is open: the lock of a disk, too.
    return None if fields[0] == "Z" and threads == 1 else int(fields[19])
