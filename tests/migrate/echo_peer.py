#!/usr/bin/python3
"""echo_peer.py ADDRESS PORT FILE: a peer that wants everything back that it sends over its one TCP connection.

Sends numbers, one a line, each when the one before has come back; FILE has the last one. When the connection ends, or
brings anything else, FILE has `broken` and why.
"""

import os
import socket
import sys
import time


def write(path, text):
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text + "\n")
    os.replace(path + ".new", path)


def main():
    address, port, path = sys.argv[1:]
    with socket.create_server((address, int(port))) as listener:
        write(path, "0")
        connection, _ = listener.accept()
    with connection, connection.makefile("rw", encoding="utf-8") as lines:
        number = 0
        while True:
            print(number, file=lines, flush=True)
            line = lines.readline()
            if line != f"{number}\n":
                raise ValueError(f"{line!r} came back for {number}")
            write(path, str(number))
            number += 1
            time.sleep(0.02)


try:
    main()
except (OSError, ValueError) as error:
    write(sys.argv[3], f"broken: {error}")
