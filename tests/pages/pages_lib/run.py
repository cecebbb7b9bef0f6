"""Runs the blocks of one page."""

import concurrent.futures
import time

from . import elsewhere, expect, places
from .blocks import hosted
from .fault import Fault


NO_TEST = "[==========] Running 0 tests"  # GoogleTest succeeds when its filter chooses none


class Run:
    def __init__(self, blocks, place):
        self._blocks, self._place = blocks, places.PLACES[place]
        self._done, self._others, self._not_run = 0, {}, []
        for block in blocks:
            if block.place() not in places.PLACES:
                raise Fault(f"{block.where()}: there is no place '{block.place()}': one of {', '.join(places.PLACES)}")
            block.commands()
        elsewhere.check(blocks)

    def begin(self, line):
        self._blocks = [block for block in self._blocks if block.line >= line]

    def list(self):
        for block in self._blocks:
            print(f"{block.where()}: {self._kind(block)}: {block.lines[0].strip()}")

    @staticmethod
    def _kind(block):
        for mark in ("not run", "run by", "as"):
            if mark in block.marks:
                return f"{mark} ({block.marks[mark]})"
        return f"on {block.place()}"

    def run(self):
        for block in self._blocks:
            if "not run" in block.marks:
                self._not_run.append(block)
            elif "run by" in block.marks:
                self._others.setdefault(f"by {block.marks['run by']}", []).append(block)
            elif block.place() != self._place.name:
                self._others.setdefault(f"on {block.place()}", []).append(block)
            else:
                began = time.monotonic()
                self._run(block)
                self._done += 1
                print(f"ok - {block.where()} ({time.monotonic() - began:.1f} s)", flush=True)

    def _run(self, block):
        commands, hosts = block.commands(), block.marks.get("on each", "").split()
        if hosts:
            with concurrent.futures.ThreadPoolExecutor(len(hosts)) as pool:
                for done in [pool.submit(self._on, block, commands, host) for host in hosts]:
                    done.result()
        else:
            self._on(block, commands, None)
        for text in block.marks.get("until", ()):
            try:
                places.repeat(self._place, *hosted(text))
            except Fault as fault:
                raise Fault(f"{block.where()}: {fault}") from None

    def _on(self, block, commands, host):
        for text in block.marks.get("before", ()):
            self._succeeds(block, host or hosted(text)[0], hosted(text)[1])
        for number, command in enumerate(commands):
            fails = "fails" in block.marks and number + 1 == len(commands)
            self._command(block, host or command.host, command, fails)

    def _command(self, block, host, command, fails):
        status, output = places.run(self._place, host, command.text)
        where = f"{block.page}:{command.line}: {command.text}"
        if status is None:
            raise Fault(f"{where}\n  does not end within {places.PATIENCE} s; it printed: {output.strip()[-2000:]}")
        if fails == (status == 0):
            said = "succeeded, and the page says that it fails" if fails else f"ended with exit status {status}"
            raise Fault(f"{where}\n  {said}: {output.strip()[-2000:]}")
        if NO_TEST in output:
            raise Fault(f"{where}\n  runs no test: {output.strip()[-2000:]}")
        if command.output is not None and (found := expect.difference(command.output, output)) is not None:
            raise Fault(f"{where}\n  {found}\n  all of it:\n{output.strip()[-4000:]}")

    def _succeeds(self, block, host, text):
        status, output = places.run(self._place, host, text)
        if status != 0:
            raise Fault(f"{block.where()}: before: {text}: exit status {status}: {output.strip()[-1000:]}")

    def summary(self):
        for what, blocks in self._others.items():
            print(f"run elsewhere, {what}: {', '.join(block.where() for block in blocks)}")
        for block in self._not_run:
            print(f"not run: {block.where()}: {block.marks['not run']}")
        others = sum(map(len, self._others.values()))
        print(f"{len(self._blocks)} blocks: {self._done} run, {others} elsewhere, {len(self._not_run)} not at all")
