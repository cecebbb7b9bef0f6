#!/usr/bin/env python3
"""Holds a capture of Ferry's traffic against what RoCEv2 asks for.

Two independent readings: tshark's fields (opcodes, PSNs, RETH, AETH), and an ICRC computed here, bit by bit as annex
A17.3.3 describes it, over the IP header as captured. Prints one line; exits 1 with the first contradictions when there
are any.
"""
import argparse
import collections
import struct
import subprocess
import sys
import zlib

OPCODES = {
    0: "SEND first", 1: "SEND middle", 2: "SEND last", 3: "SEND last imm", 4: "SEND only", 5: "SEND only imm",
    6: "WRITE first", 7: "WRITE middle", 8: "WRITE last", 9: "WRITE last imm", 10: "WRITE only", 11: "WRITE only imm",
    12: "READ request", 13: "READ response first", 14: "READ response middle", 15: "READ response last",
    16: "READ response only", 17: "ACK",
}
REQUIRED = {0, 1, 2, 4, 6, 7, 12, 13, 14, 15, 16, 17}
IMMEDIATE = {3, 5, 9, 11}
RETH = {6, 10, 11, 12}
AETH = {13, 15, 16, 17}
FULL = {0, 1, 6, 7, 13, 14}  # carry exactly one MTU
MIGRATION = 0xC0


def frames(path):
    """IP packets of a classic pcap file of an Ethernet link."""
    with open(path, "rb") as file:
        data = file.read()
    order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    at = 24
    while at + 16 <= len(data):
        captured, length = struct.unpack(order + "II", data[at + 8:at + 16])
        if captured != length:
            raise SystemExit(f"{path}: a packet was cut: capture whole packets")
        yield data[at + 30:at + 16 + captured]
        at += 16 + captured


def icrc(ip):
    """ICRC that the packet should carry, and the one it carries."""
    packet = bytearray(ip)
    if packet[0] >> 4 == 4:
        packet = packet[:struct.unpack("!H", packet[2:4])[0]]
        packet[1] = 0xFF       # TOS
        packet[8] = 0xFF       # TTL
        packet[10:12] = b"\xff\xff"
        udp = 20
    else:
        packet = packet[:40 + struct.unpack("!H", packet[4:6])[0]]
        packet[0:4] = bytes([packet[0] | 0x0F]) + b"\xff\xff\xff"
        packet[7] = 0xFF       # hop limit
        udp = 40
    packet[udp + 6:udp + 8] = b"\xff\xff"
    packet[udp + 8 + 4] = 0xFF  # BTH fecn, becn, reserved
    carried = struct.unpack("<I", packet[-4:])[0]
    return zlib.crc32(b"\xff" * 8 + bytes(packet[:-4])), carried


def tshark_rows(path):
    names = ["ip.src", "ipv6.src", "udp.length", "infiniband.bth.opcode", "infiniband.bth.padcnt",
             "infiniband.bth.destqp", "infiniband.bth.psn", "infiniband.reth.dmalen", "infiniband.aeth.syndrome",
             "infiniband.immdt", "infiniband.bth.p_key", "infiniband.bth.tver"]
    command = ["tshark", "-r", path, "-T", "fields", "-Y", "infiniband"]
    for name in names:
        command += ["-e", name]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for line in text.splitlines():
        yield dict(zip(names, line.split("\t")))


def integer(text):
    return int(text, 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pcap")
    parser.add_argument("--mtu", type=int, required=True)
    parser.add_argument("--max-length", type=int, required=True)
    options = parser.parse_args()
    wrong = []

    checked = 0
    for ip in frames(options.pcap):
        protocol = ip[9] if ip[0] >> 4 == 4 else ip[6]
        if protocol != 17:
            continue
        expected, carried = icrc(ip)
        checked += 1
        if expected != carried:
            wrong.append(f"packet {checked}: ICRC {carried:08x}, not {expected:08x}")

    seen = collections.Counter()
    next_psn = {}
    seen_psns = collections.defaultdict(set)
    write_left = {}
    decoded = 0
    for row in tshark_rows(options.pcap):
        decoded += 1
        opcode = integer(row["infiniband.bth.opcode"])
        seen[opcode] += 1
        where = f"packet {decoded} ({OPCODES.get(opcode, hex(opcode))})"
        if opcode == MIGRATION:
            continue
        if opcode not in OPCODES:
            wrong.append(f"{where}: not one of our opcodes")
            continue
        if integer(row["infiniband.bth.p_key"]) != 0xFFFF or integer(row["infiniband.bth.tver"]) != 0:
            wrong.append(f"{where}: P_Key or transport version")
        headers = 12 + 16 * (opcode in RETH) + 4 * (opcode in AETH) + 4 * (opcode in IMMEDIATE)
        payload = integer(row["udp.length"]) - 8 - headers - 4 - integer(row["infiniband.bth.padcnt"])
        if opcode in FULL and payload != options.mtu:
            wrong.append(f"{where}: {payload} bytes of payload, not one MTU")
        if bool(row["infiniband.immdt"]) != (opcode in IMMEDIATE):
            wrong.append(f"{where}: immediate data")
        if bool(row["infiniband.aeth.syndrome"]) != (opcode in AETH):
            wrong.append(f"{where}: AETH")
        if opcode in AETH and integer(row["infiniband.aeth.syndrome"]) >> 5 == 3:
            wrong.append(f"{where}: a NAK on a link without loss")
        if opcode in RETH:
            length = integer(row["infiniband.reth.dmalen"])
            if length > options.max_length + 256:
                wrong.append(f"{where}: DMA length {length}")
        # Requests of one QP: PSNs follow each other; a READ takes one for each of its responses. On a busy machine an
        # acknowledgement may come so late that requests are sent again: what has been seen already says nothing new.
        key = (row["ip.src"] or row["ipv6.src"], row["infiniband.bth.destqp"])
        if opcode <= 12:
            psn = integer(row["infiniband.bth.psn"])
            if psn in seen_psns[key]:
                continue
            if key in next_psn and psn != next_psn[key]:
                wrong.append(f"{where}: PSN {psn:#x}, not {next_psn[key]:#x}")
            took = max(1, -(-length // options.mtu)) if opcode == 12 else 1
            next_psn[key] = (psn + took) & 0xFFFFFF
            seen_psns[key].update((psn + k) & 0xFFFFFF for k in range(took))
        # The payloads of a WRITE add up to its DMA length.
        if opcode in (6, 10, 11):
            write_left[key] = length
        if opcode in (6, 7, 8, 9, 10, 11):
            write_left[key] = write_left.get(key, 0) - payload
            if opcode not in (6, 7) and write_left[key] != 0:
                wrong.append(f"{where}: the payloads differ from the DMA length by {write_left[key]}")

    if decoded == 0 or decoded != checked:
        wrong.append(f"tshark decodes {decoded} of {checked} packets")
    for opcode in sorted(REQUIRED - set(seen)):
        wrong.append(f"no {OPCODES[opcode]} in the capture")
    if not IMMEDIATE & set(seen):
        wrong.append("no immediate data in the capture")
    for line in wrong[:20]:
        print(f"{options.pcap}: {line}", file=sys.stderr)
    print(f"{decoded} packets decoded, {checked} ICRCs checked, {len(wrong)} contradictions")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
