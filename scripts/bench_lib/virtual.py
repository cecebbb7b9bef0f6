"""What the shadows of src/virtual add to an operation (bench/virtual_layer.cc under callgrind)."""

import subprocess
import tempfile

from demo_lib.failure import Failure

from . import callgrind

OPERATIONS = {"ibv_post_send": "send", "ibv_post_recv": "receive", "ibv_poll_cq": "poll"}
COUNT = 10_000


def _counted(contest, way, operation):
    """Instructions of one operation, with the loop around it."""
    with tempfile.NamedTemporaryFile(prefix="virtual_layer.") as profile:
        run = subprocess.run(
            ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={profile.name}",
             contest.lab.binaries / "virtual_layer", way, operation, str(COUNT)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if run.returncode != 0:
            raise Failure(f"virtual_layer failed: {run.stderr}")
        return sum(own for own, _ in callgrind.functions_of(profile.name).values()) / COUNT


def measure(contest):
    results = {"before a move": {}, "with a memory window": {}, "after a move": {}}
    for name, operation in OPERATIONS.items():
        contest.progress.step(f"virtual: {name}")
        direct = _counted(contest, "direct", operation)
        results["before a move"][name] = _counted(contest, "shadows", operation) - direct
        results["with a memory window"][name] = _counted(contest, "windows", operation) - direct
        results["after a move"][name] = _counted(contest, "moved", operation) - direct
    contest.table("Instructions that src/virtual adds to an operation", ["", *results],
                  [[name, *(f"{of[name]:.1f}" for of in results.values())] for name in OPERATIONS])
    return results
