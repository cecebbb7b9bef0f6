"""How long virtual machines, and the programs in them that use a device of the kernel, stand still when they move.

QEMU computes the machines' instructions (TCG): only ratios of a run mean something."""

import json
import os
import subprocess

from demo_lib.build import REPOSITORY

from .figures import median, plain, ratio, spread

LIMIT = 3600  # seconds of all moves
GROUPS = {"none": "A machine whose NIC no program uses",
          "qps": "QPs in use",
          "idle": "2 QPs in use, idle ones beside them",
          "machines": "machines at once, 2 QPs of each in use"}


def _moves(contest, groups, moves):
    """The moves that were measured, each a dictionary, and why the others could not; empty: they could."""
    command = [str(REPOSITORY / "bench" / "vm_moves"), str(moves), *groups]
    environment = {**os.environ, "FERRY_LAB": "bvm", "FERRY_BIN": str(contest.lab.binaries)}
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as running:
        try:
            said, failures = running.communicate(timeout=LIMIT)
            why = next((line for line in failures.splitlines() if line.startswith("FAILED")), failures.strip()[-300:])
        except subprocess.TimeoutExpired:
            running.terminate()  # it removes its machines
            said, _ = running.communicate()
            why = f"it does not end within {LIMIT} s"
        except BaseException:
            running.terminate()
            running.wait()
            raise
    records = [json.loads(line) for line in said.splitlines()]
    return records, "" if running.returncode == 0 else f"bench/vm_moves: {why}"


def _figures(records, group, figure):
    """{case: figures}, in the order of the moves."""
    cases = {}
    for record in records:
        if record["group"] == group and record[figure] is not None:
            cases.setdefault(record["case"], []).append(record[figure])
    return cases


def _table(contest, records, group, figure, what, note):
    cases = _figures(records, group, figure)
    if not cases:
        return
    first = next(iter(cases.values()))
    contest.table(f"{what}, milliseconds", [GROUPS[group], "median", "moves", "/ first"],
                  [[case, plain(median(each)), spread(each), f"{ratio(each, first):.2f}"]
                   for case, each in cases.items()], note)


def measure(contest):
    groups, moves = (("none", "qps", "idle"), 2) if contest.quick else (tuple(GROUPS), 6)
    contest.progress.step("vm: booting machines, moving them")
    records, failure = _moves(contest, groups, moves)
    if failure:
        contest.failures.append(failure)
    for group in groups:
        _table(contest, records, group, "paused_ms", "A virtual machine is paused", failure)
        _table(contest, records, group, "stood_still_ms", "Its programs stand still, by its clock", failure)
        if group == "machines":
            _table(contest, records, group, "took_ms", "ferry move takes", failure)
    return records
