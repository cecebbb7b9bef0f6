"""The machines of a lab, and what is on this machine for them: folders, network namespace, QEMUs."""

import concurrent.futures
import os
import pathlib
import shutil

from demo_lib.failure import Failure

from .image import Image, image
from .machine import Machine
from .network import Network

# On disk, and not in /run: what the machines write goes to their disks, which lie here.
ROOT = pathlib.Path("/var/tmp/ferry-vmlab")
MOST = 9  # machines: the image knows the names of so many
ROOM = 1 << 30  # bytes of disk for what a machine writes: packages, images of programs


def need_room(folder, machines):
    """Failure when so many machines have no room for what they write."""
    free = shutil.disk_usage(folder).free
    if free < machines * ROOM:
        raise Failure(f"not enough room in {folder} for {machines} machine{'s' if machines > 1 else ''}: "
                      f"{machines * ROOM >> 20:,} MiB needed, {free >> 20:,} MiB free; make some")


def in_use():
    """The folders of images which machines have their disks over."""
    return {pathlib.Path(os.path.realpath(link)) for link in ROOT.glob("*/image")}


class Lab:
    def __init__(self, name):
        if not name or not all(c.isalnum() or c in "-_" for c in name):
            raise Failure(f"FERRY_VMLAB={name}: use letters, digits, - and _")
        self._folder = ROOT / name
        self._name = name
        self._network = Network(self._folder / "net")

    def up(self, count, memory, processors, progress):
        if not 1 <= count <= MOST:
            raise Failure(f"{count} machines: give a number from 1 to {MOST}")
        if self._folder.exists():
            raise Failure(f"there is a lab '{self._name}' already; see: scripts/vmlab ps, scripts/vmlab down")
        need_room(ROOT.parent, count)
        made = image(progress, in_use())
        ROOT.mkdir(exist_ok=True)
        self._folder.mkdir(mode=0o700)
        try:
            (self._folder / "image").symlink_to(made.disk.parent)
            self._network.make()
            machines = [Machine(self._folder / f"h{number}", number, made, self._network)
                        for number in range(1, count + 1)]
            for machine in machines:
                machine.make(memory, processors)
                machine.start()
            progress(f"booting {count} machine{'s' if count > 1 else ''}")
            with concurrent.futures.ThreadPoolExecutor() as threads:
                list(threads.map(lambda machine: machine.wait_for_boot(), machines))
        except BaseException:
            self.down()
            raise

    def down(self):
        """Ends the machines and removes all that was made for them."""
        if not self._folder.exists():
            return
        for machine in self.machines():
            machine.remove()
        self._network.remove()
        shutil.rmtree(self._folder)
        if not any(ROOT.iterdir()):
            ROOT.rmdir()

    def machines(self):
        made = Image(pathlib.Path(os.path.realpath(self._folder / "image")))
        return [Machine(folder, int(folder.name[1:]), made, self._network)
                for folder in sorted(self._folder.glob("h[1-9]"))]

    def machine(self, name):
        for machine in self.machines():
            if machine.name == name:
                return machine
        if not self._folder.exists():
            raise Failure(f"no lab '{self._name}' here; make one with: scripts/vmlab up 2")
        raise Failure(f"no machine '{name}'; see: scripts/vmlab ps")

    def set_cable(self, name, plugged):
        self._network.set_cable(self.machine(name).name, plugged)

    def connect(self, network, namespace, bridge):
        self._network.connect(network, namespace, bridge)
