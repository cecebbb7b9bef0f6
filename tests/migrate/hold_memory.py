#!/usr/bin/python3
"""Holds memory of every kind and looks after it: exits with 1 when any of it is not as it was written.

Private and shared with its child, by fork, memfd and file, some of it written all the time; a child that is forked anew
and a program that is executed anew every so often. SIGTERM ends it, with 0, when all of its children have ended."""

import hashlib
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time

SIZE = 512 << 10  # CRIU takes no larger files that have no name
ending = False


def end(*_):
    global ending
    ending = True


def pattern(seed):
    block = hashlib.sha256(str(seed).encode()).digest()
    return block * (SIZE // len(block))


def digest(data):
    return hashlib.sha256(data).hexdigest()


signal.signal(signal.SIGTERM, end)
file = tempfile.TemporaryFile(dir="/run")
file.write(pattern("file"))
file.flush()
memfd = os.memfd_create("held")
os.ftruncate(memfd, SIZE)
areas = {
    "private": mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS),
    "shared": mmap.mmap(-1, SIZE, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS),
    "memfd": mmap.mmap(memfd, SIZE, flags=mmap.MAP_SHARED),
    "file": mmap.mmap(file.fileno(), SIZE, flags=mmap.MAP_PRIVATE),  # its pages that are written are private
    "locked": mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x2000),
}
written = {}
turn, child, program = 0, 0, None
while not ending:
    for name, area in areas.items():
        if name in written and digest(area[:]) != written[name]:
            print(f"{name} of turn {turn - 1} is not as it was written", flush=True)
            sys.exit(1)
        offset = turn * 8192 % SIZE
        if name not in written:
            area[:] = pattern(name)
        area[offset:offset + 100] = os.urandom(100)
        written[name] = digest(area[:])
    if turn % 20 == 0:
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        child = os.fork()
        if child == 0:  # shares its parent's pages until somebody writes
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which all processes of a container get
            mine = digest(areas["private"][:])
            while digest(areas["private"][:]) == mine:
                time.sleep(0.02)
            print("the child's memory is not as it was", flush=True)
            os._exit(1)
        if program:
            program.kill()
            program.wait()
        program = subprocess.Popen(["sleep", "1000"])
    if os.waitpid(child, os.WNOHANG) != (0, 0):
        print("the child has ended", flush=True)
        sys.exit(1)
    turn += 1
    time.sleep(0.02)
os.kill(child, signal.SIGKILL)
program.kill()
try:  # with the first process of a container all others are killed
    while True:
        os.wait()
except ChildProcessError:
    pass
print(f"{turn} turns, all as it was written", flush=True)
