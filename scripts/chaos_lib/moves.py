"""One move with at most one fault, from `ferry move` to the program's going on, wherever that is."""

import os
import pty
import re
import threading
import time

from demo_lib.failure import Failure
from demo_lib.lab import last_line

from .attempt import Attempt
from .hosts import await_
from .programs import await_traffic, places


class Move(Attempt):
    """done: it ended at the target. step: how far `ferry move` said that it got."""

    def __init__(self, program, hosts, target, fault, mend_after):
        self.source, self.target = hosts[program.host.name], hosts[target]
        super().__init__((self.source, self.target), fault, mend_after)
        self.program = program
        self.step, self.message = None, ""
        self.seconds = 0.0  # until it was clear where the program is, and that it goes on
        self.done = False

    def describe(self):
        fault = f", {self.fault.name}" if self.fault else ""
        return f"{self.program.name} {self.source.name} -> {self.target.name}{fault}"

    def outcome(self):
        if self.done:
            return f"{self.describe()}: done in {self.seconds:.1f} s"
        return f"{self.describe()}: rolled back at {self.step} in {self.seconds:.1f} s: {self.message}"

    def run(self):
        began = time.monotonic()
        self.begin()
        status = self._ferry_move()
        self.end()
        self.done = self._settle()
        self.disarm()
        if status == 0 and not self.done:
            raise Failure(f"{self.describe()}: ferry move said that it was done, and it was not")
        await_traffic(self.program, self.describe())
        self.seconds = time.monotonic() - began

    def _ferry_move(self):
        """Its exit status. The steps are what it shows on a terminal."""
        terminal, theirs = pty.openpty()
        said = []
        reader = threading.Thread(target=_read_all, args=(terminal, said), daemon=True)
        reader.start()
        status = self.execute(self.source.host, ["ferry", "move", self.program.name, "--to", self.target.name], theirs)
        reader.join(5)
        text = b"".join(said).decode(errors="replace")
        steps = re.findall(r"moving to \S+: \S+: (\w+) \.\.\.", text)
        self.step = steps[-1] if steps else "check"
        self.message = last_line(re.sub(r".*\r\033\[K", "", text)) if status else ""
        return status

    def _settle(self):
        """Waits until the program is in one place, and nothing else of it anywhere; whether that is the target."""
        def in_one_place():
            found = places(self.program, (self.source, self.target))
            return found[0] if found and len(found) == 1 else None
        place = await_(f"{self.describe()}: the program is in one place", in_one_place, self.serve_stragglers)
        self.program.container.host = place.host
        return place is self.target


def _read_all(descriptor, out):
    try:
        while data := os.read(descriptor, 4096):
            out.append(data)
    except OSError:
        pass  # EIO: nobody has the other side open
    os.close(descriptor)
