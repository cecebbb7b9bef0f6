"""What goes wrong during a move, and when.

A fault comes before the move begins (point None), or at a point of CRIU's work (chaos_lib/criu). It may make that point
fail, or CRIU hang there. What it broke is mended MEND_SECONDS later, or when the move has ended, whichever is first.

A killed host kills its programs, and that is no fault of Ferry's. So what dies here is what a move has to survive:
ferryds, a destination that runs no other program, the link of any host. CRIU at the source is made to fail and is not
killed: what it does to TCP connections then is its own (docs/architecture.md).
"""

import dataclasses
import typing

from .hosts import IMAGES, STATES

# Of a move, in order; ferryd reports them. After the last of them nothing is rolled back.
STEPS = ("check", "prepare", "stop", "dump", "transfer", "restore", "commit")
MEND_SECONDS = (0.1, 1.5)


@dataclasses.dataclass(frozen=True)
class Fault:
    name: str
    act: typing.Callable = lambda move: None  # with .source and .target, FragileHosts, and .interrupt()
    point: str = None
    fails: bool = False  # the point does, then
    hangs: bool = False  # it does, until ferryd kills it
    step: str = None  # where the move is rolled back; None: it may commit
    needs_empty_target: bool = False
    mended_at_end: bool = False

    def answer(self):
        """What CRIU is told at the point."""
        return "fail" if self.fails else "hang" if self.hangs else "go"

    def host(self, move):
        """Whose CRIU reaches the point."""
        return move.target if "restore" in self.point else move.source


def _cut(move):
    move.source.cut()


FAULTS = (
    Fault("the target's ferryd is down", lambda move: move.target.kill_ferryd(), step="check", mended_at_end=True),
    Fault("the target has no room for names", lambda move: move.target.fill_names(IMAGES), step="prepare",
          mended_at_end=True),
    Fault("CRIU cannot start its dump", point="dump", fails=True, step="stop"),
    Fault("the source's ferryd dies before the stop", lambda move: move.source.kill_ferryd(), "dump", step="stop"),
    Fault("CRIU's dump fails", point="network-lock", fails=True, step="dump"),
    Fault("the source's disk is full", lambda move: move.source.leave_little(IMAGES), "dump", step="dump",
          mended_at_end=True),
    Fault("the source's ferryd dies in the dump", lambda move: move.source.kill_ferryd(), "network-lock", step="dump"),
    Fault("the target's disk is full", lambda move: move.target.leave_little(IMAGES), "post-dump", step="transfer",
          mended_at_end=True),
    Fault("the target's ferryd dies before the transfer", lambda move: move.target.kill_ferryd(), "post-dump",
          step="transfer"),
    Fault("the source's ferryd dies before the transfer", lambda move: move.source.kill_ferryd(), "post-dump"),
    Fault("the source is cut off before the transfer", _cut, "post-dump"),
    Fault("CRIU's restore fails", point="restore", fails=True, step="restore"),
    Fault("the target's ferryd dies in the restore", lambda move: move.target.kill_ferryd(), "restore", step="restore"),
    Fault("the source's ferryd dies in the restore", lambda move: move.source.kill_ferryd(), "restore"),
    Fault("the target crashes in the restore", lambda move: move.target.crash(), "restore", step="restore",
          needs_empty_target=True),
    Fault("CRIU fails behind its restore", point="post-restore", fails=True, step="restore"),
    Fault("the target's ferryd dies behind the restore", lambda move: move.target.kill_ferryd(), "post-restore"),
    Fault("the source's ferryd dies behind the restore", lambda move: move.source.kill_ferryd(), "post-restore"),
    Fault("the source is cut off before the commit", _cut, "post-restore"),
    Fault("the target's record finds no room", lambda move: move.target.stop_records(), "post-restore",
          step="restore",
          mended_at_end=True),
    Fault("the source's record finds no room", lambda move: move.source.stop_records(), "post-dump", step="restore",
          mended_at_end=True),
    Fault("the source has no room for the container's state", lambda move: move.source.fill(STATES), "post-dump",
          step="commit", mended_at_end=True),
    Fault("CRIU hangs before its dump", point="dump", hangs=True, step="stop"),
    Fault("CRIU hangs in its dump", point="network-lock", hangs=True, step="dump"),
    Fault("CRIU hangs behind its dump", point="post-dump", hangs=True, step="dump"),
    Fault("CRIU hangs before its restore", point="restore", hangs=True, step="restore"),
    Fault("CRIU hangs behind its restore", point="post-restore", hangs=True, step="restore"),
    Fault("the source's ferryd dies behind the commit", lambda move: move.source.kill_ferryd(), "post-dump-after"),
    Fault("the target's ferryd dies behind the commit", lambda move: move.target.kill_ferryd(), "post-restore-after"),
    Fault("both ferryds die behind the restore",
          lambda move: (move.source.kill_ferryd(), move.target.kill_ferryd()), "post-restore"),
    Fault("ferry is interrupted", lambda move: move.interrupt(), "network-lock"),
)
