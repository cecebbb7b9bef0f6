"""One move with at most one fault, from `ferry move` to the program's going on, wherever that is."""

import os
import pty
import re
import signal
import subprocess
import threading
import time

from demo_lib.failure import Failure
from demo_lib.lab import last_line

from .hosts import await_

MEND_LATEST = 30  # a move that waits for what is broken is not left waiting
GOES_ON = 20  # packets that a program receives after its move


class Move:
    """done: it ended at the target. step: how far `ferry move` said that it got."""

    def __init__(self, program, hosts, target, fault, mend_after):
        self.program, self.fault = program, fault
        self._hosts = hosts
        self.source, self.target = hosts[program.host.name], hosts[target]
        self._mend_after = mend_after
        self.step, self.message = None, ""
        self.seconds = 0.0  # until it was clear where the program is, and that it goes on
        self.done = self.hit = False
        self._process = self._struck_at = None

    def describe(self):
        fault = f", {self.fault.name}" if self.fault else ""
        return f"{self.program.name} {self.source.name} -> {self.target.name}{fault}"

    def outcome(self):
        if self.done:
            return f"{self.describe()}: done in {self.seconds:.1f} s"
        return f"{self.describe()}: rolled back at {self.step} in {self.seconds:.1f} s: {self.message}"

    def interrupt(self):
        # nsenter and env become ferry: it is the process itself
        self._process.send_signal(signal.SIGINT)

    def run(self):
        fault = self.fault
        began = time.monotonic()
        point_host = None
        if fault and fault.point:
            point_host = fault.host(self)
            point_host.arm(fault.point)
        elif fault:
            self._strike()
        status = self._ferry_move(point_host)
        if fault:
            if fault.point:
                self._serve(point_host)  # a script that outlives ferry
            self._mend()
        self.done = self._settle()
        if point_host:
            point_host.disarm(fault.point)
        if status == 0 and not self.done:
            raise Failure(f"{self.describe()}: ferry move said that it was done, and it was not")
        self._await_traffic()
        self.seconds = time.monotonic() - began

    def _ferry_move(self, point_host):
        """Its exit status. The steps are what it shows on a terminal."""
        terminal, theirs = pty.openpty()
        self._process = subprocess.Popen(
            self.source.host.command(["ferry", "move", self.program.name, "--to", self.target.name]),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs, start_new_session=True)
        os.close(theirs)
        said = []
        reader = threading.Thread(target=_read_all, args=(terminal, said), daemon=True)
        reader.start()
        latest = time.monotonic() + MEND_LATEST
        while self._process.poll() is None:
            if point_host:
                self._serve(point_host)
            if self.fault and (self._due() or time.monotonic() > latest):
                self._mend()
                latest = float("inf")
            time.sleep(0.002)
        reader.join(5)
        text = b"".join(said).decode(errors="replace")
        steps = re.findall(r"moving to \S+: \S+: (\w+) \.\.\.", text)
        self.step = steps[-1] if steps else "check"
        self.message = last_line(re.sub(r".*\r\033\[K", "", text)) if self._process.returncode else ""
        return self._process.returncode

    def _due(self):
        return self._struck_at is not None and not self.fault.mended_at_end and (
            time.monotonic() - self._struck_at > self._mend_after)

    def _strike(self):
        self.hit = True
        self.fault.act(self)
        self._struck_at = time.monotonic()

    def _serve(self, host):
        if host.reached(self.fault.point):
            self._strike()
            host.answer(self.fault.point, self.fault.answer())

    def _mend(self):
        self._struck_at = None
        self.source.mend()
        self.target.mend()

    def _settle(self):
        """Waits until the program is in one place, and nothing else of it anywhere; whether that is the target."""
        place = await_(f"{self.describe()}: the program is in one place", self._place, self._serve_stragglers)
        self.program.container.host = place.host
        return place is self.target

    def _serve_stragglers(self):
        if self.fault and self.fault.point:
            self._serve(self.fault.host(self))
            if self._due():
                self._mend()

    def _place(self):
        if len(self.program.processes()) != 1:
            return None
        running = []
        for host in (self.source, self.target):
            if not host.ferryd_runs():
                return None
            try:
                entries = [entry for entry in host.host.ps()["programs"]
                           if entry["container"] == self.program.name or entry["name"] == self.program.name]
                config = host.host.file(f"/run/ferry/containers/{self.program.name}/config.json")
                state = re.search(r'"state": *"(\w+)"', config.read_text())
            except Failure:
                return None  # it is being started
            except OSError:
                state = None
            if any(entry["state"] in ("moving", "arriving", "in doubt", "does not answer") for entry in entries):
                return None
            if state and state[1] == "running" and any(entry["devices"] for entry in entries):
                running.append(host)
        return running[0] if len(running) == 1 else None

    def _await_traffic(self):
        base = None

        def goes_on():
            nonlocal base
            if problem := self.program.job.ended_early():
                raise Failure(problem)
            try:
                received = self.program.received()
            except Failure:
                return False  # the move beside this one has killed the ferryd here
            base = received if base is None else base
            return received >= base + GOES_ON
        await_(f"{self.describe()}: the program goes on on {self.program.host.name}", goes_on)


def _read_all(descriptor, out):
    try:
        while data := os.read(descriptor, 4096):
            out.append(data)
    except OSError:
        pass  # EIO: nobody has the other side open
    os.close(descriptor)
