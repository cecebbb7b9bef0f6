"""Programs that keep every processor busy, for tests that must not depend on how fast the machine is."""

import contextlib
import os
import subprocess


@contextlib.contextmanager
def processors():
    loops = [subprocess.Popen(["/bin/sh", "-c", "while :; do :; done"]) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
