"""What goes wrong while a checkpoint is taken, and while programs start again from one.

The points are those of CRIU's work on one host of the job, the victim (chaos_lib/criu). The ferryd that was asked is
the coordinator, on any host. A host that crashes takes its programs along; the job goes on from its newest checkpoint
then, as after a program that was killed.
"""

import dataclasses

from .faults import Fault
from .hosts import IMAGES

STORE_FILE = 16384  # bytes of the largest file that a store without room still takes


@dataclasses.dataclass(frozen=True)
class JobFault(Fault):
    """`act` gets an Attempt with .victim and .asked, FragileHosts. needs_restart: the job does not survive it."""
    needs_restart: bool = False

    def host(self, attempt):
        return attempt.victim


def _kill_victim(attempt):
    attempt.victim.kill_ferryd()


def _kill_asked(attempt):
    attempt.asked.kill_ferryd()


def _kill_both(attempt):
    attempt.victim.kill_ferryd()
    attempt.asked.kill_ferryd()


def _cut(attempt):
    attempt.victim.cut()


TAKING = (
    JobFault("the ferryd that is asked is down", _kill_asked),
    JobFault("a ferryd of the job is down", _kill_victim),
    JobFault("CRIU cannot start its dump", point="dump", fails=True),
    JobFault("CRIU's dump fails", point="network-lock", fails=True),
    JobFault("CRIU hangs in its dump", point="network-lock", hangs=True),
    JobFault("CRIU hangs behind its dump", point="post-dump", hangs=True),
    JobFault("a ferryd of the job dies before the dump", _kill_victim, "dump"),
    JobFault("a ferryd of the job dies in the dump", _kill_victim, "network-lock"),
    JobFault("a ferryd of the job dies behind the dump", _kill_victim, "post-dump"),
    JobFault("a ferryd of the job dies while images are stored", _kill_victim, "post-dump-after"),
    JobFault("the ferryd that was asked dies before the dump", _kill_asked, "dump"),
    JobFault("the ferryd that was asked dies in the dump", _kill_asked, "network-lock"),
    JobFault("the ferryd that was asked dies behind the dump", _kill_asked, "post-dump"),
    JobFault("the ferryd that was asked dies while images are stored", _kill_asked, "post-dump-after"),
    JobFault("both ferryds die in the dump", _kill_both, "network-lock"),
    JobFault("a host of the job is cut off in the dump", _cut, "network-lock"),
    JobFault("a host of the job is cut off while images are stored", _cut, "post-dump-after"),
    JobFault("the disk for images is full", lambda attempt: attempt.victim.leave_little(IMAGES), "dump",
             mended_at_end=True),
    JobFault("the store has no room", lambda attempt: attempt.victim.limit_files(STORE_FILE), "dump",
             mended_at_end=True),
    JobFault("the store is away", lambda attempt: attempt.hide_store(), mended_at_end=True),
    JobFault("the store goes away in the dump", lambda attempt: attempt.hide_store(), "network-lock",
             mended_at_end=True),
    JobFault("ferry is interrupted", lambda attempt: attempt.interrupt(), "network-lock"),
    JobFault("a program is killed before the dump", lambda attempt: attempt.kill_program(), "dump",
             needs_restart=True),
    JobFault("a host of the job crashes in the dump", lambda attempt: attempt.victim.crash(), "network-lock",
             needs_restart=True),
)

RESTARTING = (
    JobFault("a ferryd is down", _kill_victim),
    JobFault("CRIU's restore fails", point="restore", fails=True),
    JobFault("CRIU fails behind its restore", point="post-restore", fails=True),
    JobFault("CRIU hangs before its restore", point="restore", hangs=True),
    JobFault("CRIU hangs behind its restore", point="post-restore", hangs=True),
    JobFault("a ferryd dies in the restore", _kill_victim, "restore"),
    JobFault("a ferryd dies behind the restore", _kill_victim, "post-restore"),
    JobFault("a ferryd dies behind the decision", _kill_victim, "post-restore-after"),
    JobFault("the ferryd that was asked dies in the restore", _kill_asked, "restore"),
    JobFault("the ferryd that was asked dies behind the restore", _kill_asked, "post-restore"),
    JobFault("the ferryd that was asked dies behind the decision", _kill_asked, "post-restore-after"),
    JobFault("both ferryds die behind the restore", _kill_both, "post-restore"),
    JobFault("a host is cut off behind the restore", _cut, "post-restore"),
    JobFault("the disk for images is full", lambda attempt: attempt.victim.leave_little(IMAGES), mended_at_end=True),
    JobFault("the store goes away", lambda attempt: attempt.hide_store(), "restore", mended_at_end=True),
    JobFault("ferry is interrupted", lambda attempt: attempt.interrupt(), "restore"),
)
