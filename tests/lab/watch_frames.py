#!/usr/bin/python3
"""Counts the frames that come by on an interface from one MAC address.

usage: watch_frames.py INTERFACE MAC [COUNT]

Prints the number of all frames from MAC and of gratuitous ARPs (sender's = target's address) among them, as
"frames announcements", when it gets SIGTERM or has seen COUNT announcements. A line "watching PID" on stderr says that
it listens.
"""

import os
import signal
import socket
import sys

ETH_P_ALL, ETH_P_ARP = 3, 0x0806


class Stopped(Exception):
    pass


def stop(*_):
    raise Stopped


def main():
    interface, mac = sys.argv[1:3]
    enough = int(sys.argv[3]) if len(sys.argv) > 3 else None
    mac = bytes.fromhex(mac.replace(":", ""))
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    packets.bind((interface, 0))
    frames = announcements = 0
    signal.signal(signal.SIGTERM, stop)
    print("watching", os.getpid(), file=sys.stderr, flush=True)
    try:
        while announcements != enough:
            frame = packets.recv(65536)
            if frame[6:12] != mac:
                continue
            frames += 1
            arp = int.from_bytes(frame[12:14], "big") == ETH_P_ARP
            announcements += arp and frame[28:32] == frame[38:42]
    except Stopped:
        pass
    print(frames, announcements)


main()
