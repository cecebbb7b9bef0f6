#!/usr/bin/env python3
"""Does what systemd does with ferry-piped.socket and Restart=: listens, and starts the command each time it has ended.

usage: keep_listening.py SOCKET COMMAND...

Writes the PID of each into SOCKET.pid. Ends when SOCKET.pid is gone.
"""

import os
import socket
import sys

FIRST = 3  # SD_LISTEN_FDS_START


def listen(path):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(128)
    return listener


def main():
    path, command = sys.argv[1], sys.argv[2:]
    listener = listen(path)
    with open(path + ".pid", "w", encoding="ascii") as file:
        file.write("")
    while os.path.exists(path + ".pid"):
        pid = os.fork()
        if pid == 0:
            if listener.fileno() == FIRST:
                os.set_inheritable(FIRST, True)
            else:
                os.dup2(listener.fileno(), FIRST)
            os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
            os.execv(command[0], command)
        with open(path + ".new", "w", encoding="ascii") as file:
            file.write(str(pid))
        if os.path.exists(path + ".pid"):
            os.rename(path + ".new", path + ".pid")
        os.waitpid(pid, 0)


main()
