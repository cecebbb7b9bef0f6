"""Checkpoints and restarts of one job, with at most one fault each: what is true afterwards, whatever failed."""

import json
import os
import random
import signal
import tempfile
import time

from demo_lib.failure import Failure
from demo_lib.lab import last_line

from .attempt import Attempt
from .checkpoint_faults import RESTARTING, TAKING
from .faults import MEND_SECONDS
from .hosts import IMAGES, await_
from .programs import await_traffic, places

JOB = "chaos"
STORE, AWAY = "/srv/store", "/srv/away"
KEEP = 2
FAULTY_SHARE = 0.5  # of checkpoints and restarts ordered at random
RESTART_SHARE = 0.3  # of the checkpoints behind which the job is lost, and starts again
BRIEF = 3  # faults of a checkpoint, and of a restart
TRIES = 3  # for a restart, when nothing fails any more


class JobAttempt(Attempt):
    """asked: the host whose ferryd is the coordinator. victim: where the fault strikes."""

    def __init__(self, chaos, fault, asked, victim, mend_after):
        super().__init__(chaos.hosts.values(), fault, mend_after)
        self.asked, self.victim, self._chaos = asked, victim, chaos
        self.done, self.message, self.report = False, "", {}

    def hide_store(self):
        self._chaos.move_store(STORE, AWAY)

    def mend(self):
        self._chaos.move_store(AWAY, STORE)
        super().mend()

    def kill_program(self):
        pids = [pid for program in self._chaos.programs() if program.host is self.victim.host
                for pid in program.processes()]
        os.kill(pids[0], signal.SIGKILL)

    def run(self, *argv):
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            self.begin()
            status = self.execute(self.asked.host, ["ferry", *argv, "--json"], os.dup(err.fileno()), out)
            self.end()
            out.seek(0)
            err.seek(0)
            self.done = status == 0
            if self.done:
                self.report = json.loads(out.read())
            else:
                self.message = last_line(err.read().decode(errors="replace"))


class CheckpointChaos:
    """hosts: FragileHosts by name. start_job: starts the pairs of stream_check, all of the job JOB."""

    def __init__(self, hosts, start_pairs, seed, progress):
        self.hosts, self._progress = hosts, progress
        self._random = random.Random(seed)
        self._hosts = list(hosts.values())
        self._hosts[0].host.file(STORE).mkdir(mode=0o700)
        self.pairs = start_pairs()
        self.counts = {kind: {} for kind in ("checkpoint", "restart")}  # by fault: [tried, done]
        self._newest = None  # id of the newest complete checkpoint

    def programs(self):
        return [program for pair in self.pairs for program in pair.programs]

    def move_store(self, old, new):
        old, new = (self._hosts[0].host.file(path) for path in (old, new))
        if old.exists():
            old.rename(new)

    # the schedule

    def run(self, seconds, brief, only):
        """Each fault once whose name has `only` (brief: a few that do not take long), then as chance has it, until
        the time is over."""
        began = time.monotonic()
        taking, restarting = ([fault for fault in faults if only in fault.name] for faults in (TAKING, RESTARTING))
        if not taking + restarting:
            raise Failure(f"no fault is called '{only}'; see scripts/chaos_lib/checkpoint_faults.py")
        self._checkpoint(None)
        for faults, act in ((taking, self._checkpoint), (restarting, self._lose_and_restart)):
            if brief:
                faults = self._random.sample([fault for fault in faults if not fault.hangs], BRIEF)
            for fault in faults:
                act(fault)
        while time.monotonic() - began < seconds:
            self._checkpoint(self._chosen(taking))
            if self._random.random() < RESTART_SHARE:
                self._lose_and_restart(self._chosen(restarting))
        self._checkpoint(None)
        self._lose_and_restart(None)
        self._checkpoint(None)
        self._need_nothing_left()

    def _chosen(self, faults):
        return self._random.choice(faults) if faults and self._random.random() < FAULTY_SHARE else None

    # a checkpoint

    def _checkpoint(self, fault):
        """Whatever fails: the job goes on, and the newest checkpoint is complete, and the one before or this one."""
        victim = self._random.choice([self.hosts[program.host.name] for program in self.programs()])
        attempt = JobAttempt(self, fault, self._any_host(), victim, self._random.uniform(*MEND_SECONDS))
        what = f"checkpoint by {attempt.asked.name}" + (f", {fault.name} ({victim.name})" if fault else "")
        self._progress.step(what)
        began = time.monotonic()
        attempt.run("checkpoint", "--job", JOB, "--to", STORE, "--keep", str(KEEP))
        if fault and fault.needs_restart and attempt.hit:
            attempt.disarm()
            self._note("checkpoint", what, attempt, began)
            self._newest = self._newest_of(attempt, what)
            return self._lose_and_restart(None)
        self._await_all(what, attempt)
        attempt.disarm()
        self._newest = self._newest_of(attempt, what)
        self._note("checkpoint", what, attempt, began)
        if fault is None and not attempt.done:
            raise Failure(f"{what} failed without a fault: {attempt.message}")
        return None

    def _newest_of(self, attempt, what):
        listed = self._complete()
        newest = listed[-1] if listed else None
        if attempt.done and newest != attempt.report["id"]:
            raise Failure(f"{what}: the newest is {newest}, and not {attempt.report['id']}, which was made")
        if self._newest and self._newest not in listed and len(listed) < KEEP:
            raise Failure(f"{what}: {self._newest}, the newest before, is gone")
        if len(listed) > KEEP + 1:
            raise Failure(f"{what}: --keep {KEEP} keeps {len(listed)}")
        return newest

    def _complete(self):
        """Ids of the complete ones, the latest last."""
        def look():
            status, out, _ = self._hosts[0].host.run(["ferry", "checkpoints", STORE, "--json"])
            return [each["id"] for each in json.loads(out)["checkpoints"] if each["complete"]] if status == 0 else None
        return await_("ferry checkpoints lists the store", lambda: (look(),))[0] or []

    # a restart

    def _lose_and_restart(self, fault):
        """The job goes on from its newest checkpoint, as a whole, on other hosts; or nothing of it does."""
        self._lose()
        host = self._random.choice(self._hosts)
        for attempt_fault in (fault, *([None] * TRIES)):
            on = self._random.sample(self._hosts, self._random.choice((1, 2, 3)))
            victim = self._random.choice(on)
            attempt = JobAttempt(self, attempt_fault, self._any_host(), victim, self._random.uniform(*MEND_SECONDS))
            what = f"restart by {attempt.asked.name} on {','.join(each.name for each in on)}" + (
                f", {attempt_fault.name} ({victim.name})" if attempt_fault else "")
            self._progress.step(what)
            began = time.monotonic()
            attempt.run("restart", STORE, "--on", ",".join(each.name for each in on))
            is_there = await_(f"{what}: all of the job goes on, or nothing", self._all_or_nothing,
                              attempt.serve_stragglers)
            attempt.disarm()
            self._note("restart", what, attempt, began)
            if attempt.done and (is_there != "all" or attempt.report["id"] != self._newest):
                raise Failure(f"{what}: it said that {attempt.report['id']} goes on; {is_there} does, and the "
                              f"newest is {self._newest}")
            if is_there == "all":
                self._await_all(what, attempt)
                return
            self._forget()
            host.mend()
        raise Failure(f"{self._newest} does not start again: {attempt.message}")

    def _lose(self):
        for pair in self.pairs:
            pair.kill(signal.SIGKILL)
        await_("the job's processes have ended", lambda: not any(each.processes() for each in self.programs()))
        self._forget()

    def _forget(self):
        """The lab's hosts forget the containers that have ended, which have the names of those that will go on."""
        def ended():
            for host in self._hosts:
                for program in self.programs():
                    folder = host.host.file(f"/run/ferry/containers/{program.name}")
                    if folder.exists() and not (folder / "exit").exists():
                        return False
                    host.host.run(["rm", "-rf", f"/run/ferry/containers/{program.name}"])
            return True
        await_("the job's containers have ended", ended)

    # what is there

    def _places(self):
        """Of each program, the host; None while that is not clear."""
        found = []
        for program in self.programs():
            where = places(program, self._hosts)
            if where is None or len(where) > 1 or len(program.processes()) != len(where):
                return None
            found.append(where[0] if where else None)
        return found

    def _all_or_nothing(self):
        found = self._places()
        if found is None or (None in found and any(found)):
            return None
        if None in found:
            return "nothing"
        for program, where in zip(self.programs(), found):
            program.container.host = where.host
        return "all"

    def _await_all(self, what, attempt):
        await_(f"{what}: all of the job is there", lambda: self._all_or_nothing() == "all", attempt.serve_stragglers)
        for program in self.programs():
            await_traffic(program, what)

    def _need_nothing_left(self):
        for host in self._hosts:
            await_(f"{host.name} has no images of checkpoints any more",
                   lambda host=host: not list(host.host.file(IMAGES).iterdir()))
        for name in self._left():
            # Of a coordinator that was killed, or from which the store went away.
            identity, _, kind = name.partition(".")
            status, _, error = self._hosts[0].host.run(["ferry", "checkpoints", STORE, "rm", identity])
            if kind != "partial" or status != 0:
                raise Failure(f"{name} in the store is of no checkpoint, and cannot be deleted: {last_line(error)}")
        if left := self._left():
            raise Failure(f"the store has what is of no checkpoint: {', '.join(left)}")

    def _left(self):
        known = set(self._complete())
        return [each.name for each in self._hosts[0].host.file(STORE).iterdir() if each.is_dir() and
                each.name not in known]

    def _any_host(self):
        return self._random.choice(self._hosts)

    def _note(self, kind, what, attempt, began):
        name = attempt.fault.name if attempt.fault else "none"
        if attempt.fault is None or attempt.hit:
            counts = self.counts[kind].setdefault(name, [0, 0])
            counts[0] += 1
            counts[1] += attempt.done
        outcome = "done" if attempt.done else f"failed: {attempt.message}"
        self._progress.say(f"chaos: {what}: {outcome} ({time.monotonic() - began:.1f} s)")

    def finish(self):
        results = []
        for pair in self.pairs:
            self._progress.step(f"ending {pair.name}")
            results.append(pair.finish())
        return results
