"""The networks of the machines: two bridges in a network namespace of the lab's.

    lab   10.79.0.0/24   hK: 10.79.0.K on eth0: what the machines have between them, and rdma_rxe if it is asked for
    reach 10.79.1.0/24   hK: 10.79.1.K on eth1, this machine 10.79.1.254: ssh from here, whatever is done to the other
"""

import subprocess

from demo_lib.failure import Failure

BRIDGES = ("lab", "reach")  # of eth0, of eth1
MTU = 9000  # of eth0 and all on its way, for RDMA with its MTU of 4096


def address(number, bridge):
    return f"10.79.{BRIDGES.index(bridge)}.{number}"


class Network:
    def __init__(self, namespace):
        """`namespace`: the file to which the network namespace is bound."""
        self._namespace = namespace
        self.enter = ["nsenter", f"--net={namespace}"]

    def make(self):
        self._namespace.touch()
        _run(["unshare", f"--net={self._namespace}", "true"])
        self._ip("link set dev lo up")
        for bridge in BRIDGES:
            self._ip(f"link add name {bridge} mtu {MTU} type bridge stp_state 0 forward_delay 0 mcast_snooping 0")
            self._ip(f"link set dev {bridge} up")
        self._ip(f"address add {address(254, 'reach')}/24 dev reach")

    def add_taps(self, machine):
        """A cable from each interface of a machine: the names of the taps, in the order of BRIDGES."""
        taps = [f"{machine}-{bridge}" for bridge in BRIDGES]
        for tap, bridge in zip(taps, BRIDGES):
            self._ip(f"tuntap add dev {tap} mode tap")
            self._ip(f"link set dev {tap} mtu {MTU} master {bridge} up")
        return taps

    def set_cable(self, machine, plugged):
        """Plugs a machine's cable to the other machines in, or pulls it."""
        self._ip(f"link set dev {machine}-lab {'up' if plugged else 'down'}")

    def connect(self, network, namespace, bridge):
        """Joins one of BRIDGES with a bridge in another network namespace, which is bound to a file."""
        if network not in BRIDGES:
            raise Failure(f"no network '{network}' of the machines: use {' or '.join(BRIDGES)}")
        there = f"vmlab-{network}"
        self._ip(f"link add name joined-{network} mtu {MTU} type veth peer name {there} mtu {MTU} netns {namespace}")
        self._ip(f"link set dev joined-{network} master {network} up")
        _run(["nsenter", f"--net={namespace}", "ip", "link", "set", "dev", there, "master", bridge, "up"])

    def remove(self):
        if self._namespace.exists():
            subprocess.run(["umount", self._namespace], stderr=subprocess.DEVNULL, check=False)
            self._namespace.unlink()

    def _ip(self, words):
        _run([*self.enter, "ip", *words.split(" ")])


def _run(command):
    result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, check=False)
    if result.returncode != 0:
        raise Failure(f"cannot make the machines' network: {' '.join(map(str, command))}: {result.stdout.strip()}")
