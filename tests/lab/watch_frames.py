#!/usr/bin/python3
"""Counts the frames that come by on an interface from one MAC address.

usage: watch_frames.py INTERFACE MAC SECONDS [COUNT]

Prints the number of all frames from MAC and of gratuitous ARPs (sender's = target's address) among them, as
"frames announcements"; ends early after COUNT announcements. A line "watching" on stderr says that it listens.
"""

import socket
import sys
import time

ETH_P_ALL, ETH_P_ARP = 3, 0x0806


def main():
    interface, mac, seconds = sys.argv[1:4]
    enough = int(sys.argv[4]) if len(sys.argv) > 4 else None
    mac = bytes.fromhex(mac.replace(":", ""))
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    packets.bind((interface, 0))
    print("watching", file=sys.stderr, flush=True)
    deadline = time.monotonic() + float(seconds)
    frames = announcements = 0
    while (left := deadline - time.monotonic()) > 0 and announcements != enough:
        packets.settimeout(left)
        try:
            frame = packets.recv(65536)
        except TimeoutError:
            break
        if frame[6:12] != mac:
            continue
        frames += 1
        arp = int.from_bytes(frame[12:14], "big") == ETH_P_ARP
        announcements += arp and frame[28:32] == frame[38:42]
    print(frames, announcements)


main()
