#!/usr/bin/python3
"""Counts the frames that come by on an interface from one MAC address.

usage: watch_frames.py INTERFACE MAC [COUNT [arp|na]]

Prints the number of all frames from MAC and of announcements among them, as "frames announcements", when it gets
SIGTERM or has seen COUNT announcements: gratuitous ARPs (sender's = target's address), or unsolicited neighbour
advertisements (ICMPv6 type 136 to all nodes, not solicited). A line "watching PID" on stderr says that it listens.
"""

import os
import signal
import socket
import sys

ETH_P_ALL, ETH_P_ARP, ETH_P_IPV6 = 3, 0x0806, 0x86DD
ALL_NODES = bytes.fromhex("ff02" + "00" * 13 + "01")


class Stopped(Exception):
    pass


def stop(*_):
    raise Stopped


def announces(frame, kind):
    ethertype = int.from_bytes(frame[12:14], "big")
    if kind == "arp":
        return ethertype == ETH_P_ARP and frame[28:32] == frame[38:42]
    ip, message = frame[14:54], frame[54:]
    return (
        ethertype == ETH_P_IPV6
        and (ip[6], ip[7], ip[24:40]) == (58, 255, ALL_NODES)
        and (message[0], message[4] & 0x40, message[8:24]) == (136, 0, ip[8:24])
    )


def main():
    interface, mac = sys.argv[1:3]
    enough = int(sys.argv[3]) if len(sys.argv) > 3 else None
    kind = sys.argv[4] if len(sys.argv) > 4 else "arp"
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
            announcements += announces(frame, kind)
    except Stopped:
        pass
    print(frames, announcements)


main()
