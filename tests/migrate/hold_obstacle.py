#!/usr/bin/python3
"""Holds what CRIU cannot move, one thing after the other, as FOLDER/want says; FOLDER/has then says the same, or
"nothing" where this machine has no such thing.

   hold_obstacle.py FOLDER"""

import ctypes
import fcntl
import os
import socket
import sys
import time

IO_URING_SETUP, USERFAULTFD = 425, 323
libc = ctypes.CDLL(None, use_errno=True)


def system_call(number, *arguments):
    descriptor = libc.syscall(number, *arguments)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "system call")
    return descriptor


def locked(path):
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def deleted(path):
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    os.write(descriptor, bytes(2 << 20))
    os.unlink(path)
    return descriptor


def connected(path):
    outside = socket.socket(socket.AF_UNIX)
    outside.connect(path)
    return outside.detach()


KINDS = {
    "io_uring": lambda _: system_call(IO_URING_SETUP, 4, ctypes.create_string_buffer(120)),
    "userfaultfd": lambda _: system_call(USERFAULTFD, 1),
    "device": lambda _: os.open("/dev/fuse", os.O_RDWR),
    "vsock": lambda _: socket.socket(40, socket.SOCK_STREAM).detach(),
    "lock": lambda folder: locked(folder + "/lock"),
    "deleted": lambda folder: deleted(folder + "/deleted"),
    "file": lambda folder: os.open(folder + "/only-here", os.O_RDWR | os.O_CREAT, 0o644),
    "connection": lambda folder: connected(folder + "/outside"),
}


def main(folder):
    held, wanted = None, ""
    while True:
        time.sleep(0.02)
        with open(folder + "/want", encoding="ascii") as file:
            word = file.read().strip()
        if word == wanted:
            continue
        wanted, has = word, "nothing"
        if held is not None:
            os.close(held)
            held = None
        if wanted in KINDS:
            try:
                held = KINDS[wanted](folder)
                has = wanted
            except OSError as error:
                print(wanted, error, flush=True)
        with open(folder + "/has.new", "w", encoding="ascii") as file:
            file.write(has + "\n")
        os.rename(folder + "/has.new", folder + "/has")


main(sys.argv[1])
