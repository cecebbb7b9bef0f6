"""A command of ferry's during which at most one fault strikes, and is mended."""

import os
import signal
import subprocess
import time

MEND_LATEST = 30  # seconds: what waits for something that is broken is not left waiting


class Attempt:
    """hosts: FragileHosts that are mended. A fault's act() gets this object."""

    def __init__(self, hosts, fault, mend_after):
        self.fault, self._hosts, self._mend_after = fault, hosts, mend_after
        self.hit = False
        self._process = self._struck_at = self._point_host = None

    def interrupt(self):
        # nsenter and env become ferry: it is the process itself
        self._process.send_signal(signal.SIGINT)

    def begin(self):
        if self.fault and self.fault.point:
            self._point_host = self.fault.host(self)
            self._point_host.arm(self.fault.point)
        elif self.fault:
            self._strike()

    def execute(self, host, argv, stderr, stdout=subprocess.DEVNULL):
        """Runs the command on that host, until it has ended, with the fault; its exit status. Closes `stderr`."""
        self._process = subprocess.Popen(host.command(argv), stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
                                         start_new_session=True)
        os.close(stderr)
        latest = time.monotonic() + MEND_LATEST
        while self._process.poll() is None:
            self._serve()
            if self.fault and (self._due() or time.monotonic() > latest):
                self.mend()
                latest = float("inf")
            time.sleep(0.002)
        return self._process.returncode

    def end(self):
        """Behind the command, whose scripts may outlive it."""
        if self.fault:
            self._serve()
            self.mend()

    def serve_stragglers(self):
        if self._point_host:
            self._serve()
            if self._due():
                self.mend()

    def disarm(self):
        if self._point_host:
            self._point_host.disarm(self.fault.point)

    def mend(self):
        self._struck_at = None
        for host in self._hosts:
            host.mend()

    def _due(self):
        return self._struck_at is not None and not self.fault.mended_at_end and (
            time.monotonic() - self._struck_at > self._mend_after)

    def _strike(self):
        self.hit = True
        self.fault.act(self)
        self._struck_at = time.monotonic()

    def _serve(self):
        if self._point_host and not self.hit and self._point_host.reached(self.fault.point):
            self._strike()
            self._point_host.answer(self.fault.point, self.fault.answer())
