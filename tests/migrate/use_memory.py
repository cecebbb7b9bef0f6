#!/usr/bin/python3
"""Uses much memory all the time: its children look whether they have it as well, some execute another program; it maps
new memory and drops it. Exits with 1 when any of it is not as it was written. SIGTERM ends it, with 0.

  use_memory.py MIB"""

import mmap
import os
import random
import signal
import sys

PAGE = 4096
BLOCK = 2 << 20
ending = False


def end(*_):
    global ending
    ending = True


def mark(block, page):
    return (block << 32 | page + 1).to_bytes(8, "little")


def fill(block):
    memory = mmap.mmap(-1, BLOCK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for page in range(0, BLOCK, PAGE):
        memory[page:page + 8] = mark(block, page)
    return memory


def look(blocks, count):
    for _ in range(count):
        block, page = random.randrange(len(blocks)), random.randrange(0, BLOCK, PAGE)
        if blocks[block][page:page + 8] != mark(block, page):
            print(f"page {page} of block {block} is not as it was written", flush=True)
            return 1
    return 0


def child(blocks, count, executes):
    pid = os.fork()
    if pid > 0:
        return pid
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which all processes of a container get
    random.seed(os.getpid())
    status = look(blocks, count)
    if status == 0 and executes:
        os.execv("/bin/true", ["true"])
    os._exit(status)


signal.signal(signal.SIGTERM, end)
blocks = [fill(block) for block in range((int(sys.argv[1]) << 20) // BLOCK)]
turn, forks = 0, 0
while not ending:
    children = [child(blocks, 200, turn % 2 == 0) for _ in range(2)]
    failed = look(blocks, 100)
    block = random.randrange(len(blocks))
    if turn % 3 == 0:
        blocks[block].close()
        blocks[block] = fill(block)
    else:
        page = random.randrange(0, BLOCK, PAGE)
        blocks[block].madvise(mmap.MADV_DONTNEED, page, PAGE)
        blocks[block][page:page + 8] = mark(block, page)
    for pid in children:
        failed |= os.waitpid(pid, 0)[1]
    if failed:
        sys.exit(1)
    turn += 1
    forks += len(children)
try:  # with the first process of a container all others are killed
    while True:
        os.wait()
except ChildProcessError:
    pass
print(f"{forks} children, all memory as it was written", flush=True)
