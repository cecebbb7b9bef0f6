"""Which program moves where, with which fault: every fault once, then as chance has it."""

import concurrent.futures
import random
import signal
import time
import traceback

from demo_lib.failure import Failure

from .faults import MEND_SECONDS, STEPS
from .moves import Move

FAULTY_SHARE = 0.4  # of the moves ordered at random
TOGETHER_SHARE = 0.5  # of these moves that another one goes beside
SPARE_SHARE = 0.1  # that go to the host that is kept empty, so that it can crash
TRIES = 5  # for each step at which no rollback was seen yet


class Chaos:
    def __init__(self, hosts, start_jobs, faults, seed, progress):
        """hosts: FragileHosts by name; the last one starts without programs. start_jobs: functions that start a Job."""
        self.hosts, self.progress, self.faults = hosts, progress, faults
        self._random = random.Random(seed)
        self.moves, self.problems, self.finished = [], [], []
        self._start = start_jobs
        self.jobs = [start() for start in start_jobs]
        self._pool = concurrent.futures.ThreadPoolExecutor()
        self._began = time.monotonic()

    # what came of it

    def tried(self):
        return len(self.moves)

    def done(self):
        return sum(move.done for move in self.moves)

    def rolled_back(self):
        """By step, of moves that ended where they began."""
        return {step: sum(not move.done and move.step == step for move in self.moves) for step in STEPS}

    def by_fault(self):
        result = {}
        for fault in (None, *self.faults):
            of_it = [move for move in self.moves if move.fault is fault and (fault is None or move.hit)]
            result[fault.name if fault else "none"] = {"tried": len(of_it), "done": sum(move.done for move in of_it)}
        return result

    # the schedule

    def run(self, seconds):
        """Each fault once and a rollback at every step, then chance, until the time is over and half the moves done."""
        for fault in sorted(self.faults, key=lambda fault: not fault.needs_empty_target):
            self._together([(self._any_program(), fault)])
            if not self.moves[-1].done:
                self._together([(self._any_program(), None)])
        for step in STEPS:
            causes = [fault for fault in self.faults if fault.step == step and not fault.needs_empty_target]
            for attempt in range(TRIES):
                if causes and self.rolled_back()[step] == 0:
                    self._together([(self._any_program(), causes[attempt % len(causes)])])
        while time.monotonic() - self._began < seconds:
            self._at_random()
        while 2 * self.done() < self.tried() and not self.problems:
            self._together([(self._any_program(), None)])

    def finish(self):
        for job in self.jobs:
            self.progress.step(f"ending {job.name}")
            try:
                counts = job.finish()
            except Failure as failure:
                counts = {"problems": [str(failure)]}
            self.problems += counts.pop("problems")
            self.finished.append((job, counts))
        self._pool.shutdown()

    def _at_random(self):
        fault = self._random.choice(self.faults) if self._random.random() < FAULTY_SHARE else None
        orders = [(self._any_program(), fault)]
        if self._random.random() < TOGETHER_SHARE:
            orders.append((self._any_program(), None))
        self._together(orders)

    def _any_program(self):
        return self._random.choice([program for job in self.jobs for program in job.programs])

    def _together(self, orders):
        """(program, fault) each; moves them at the same time and waits for all."""
        moves = []
        taken = set()
        for program, fault in orders:
            if program in taken:
                continue
            target = self._choose_target(program, fault, moves)
            if target is None:
                continue
            taken.add(program)
            moves.append(Move(program, self.hosts, target, fault, self._random.uniform(*MEND_SECONDS)))
        self.progress.step(f"{self.tried()} moves tried, {self.done()} done; now "
                           f"{' and '.join(move.describe() for move in moves)}")
        failures = {}
        for move, future in [(move, self._pool.submit(move.run)) for move in moves]:
            try:
                future.result()
            except Exception as failure:  # whatever it is, the others go on, and the end tells
                if not isinstance(failure, Failure):
                    traceback.print_exc()
                failures[move] = f"{move.describe()} ({move.step}): {failure}"
        self.moves += moves
        for move in moves:
            self.progress.say(f"chaos: {len(self.moves)} {move.outcome()}")
        for move, text in failures.items():
            self._replace(move, text)
        for job in list(self.jobs):
            if early := job.ended_early():
                self._replace_job(job, f"after {'; '.join(move.describe() for move in moves)}: {early}")

    def _choose_target(self, program, fault, moves):
        names = [name for name in self.hosts if name != program.host.name]
        spare = list(self.hosts)[-1]
        used = {each.host.name for job in self.jobs for each in job.programs} | {move.target.name for move in moves}
        crashing = {move.target.name for move in moves if move.fault and move.fault.needs_empty_target}
        if fault and fault.needs_empty_target:
            return spare if spare not in used else None
        names = [name for name in names if name not in crashing]
        if spare in names and len(names) > 1 and self._random.random() > SPARE_SHARE:
            names.remove(spare)
        return self._random.choice(names)

    # what died is started anew, so that the end of a long run is not lost with it

    def _replace(self, move, text):
        self.problems.append(text)
        self.progress.say(f"chaos: FAILED: {text}")
        for host in (move.source, move.target):
            self.progress.say(f"--- ferryd of {host.name}\n{host.log_end(12)}")
        self._replace_job(move.program.job)

    def _replace_job(self, job, text=None):
        if job not in self.jobs:
            return
        if text:
            self.problems.append(text)
            self.progress.say(f"chaos: FAILED: {text}")
        job.kill(signal.SIGKILL)
        at = self.jobs.index(job)
        for host in self.hosts.values():
            host.mend()
        self.jobs[at] = self._start[at]()
