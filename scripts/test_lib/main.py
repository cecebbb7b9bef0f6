"""Runs lint, end-to-end tests, and unit tests under sanitizers; closes with "N passed, N failed".

A failed end-to-end test is run once more, alone. If it passes then, the suite passes, and its last lines say
`flaky: NAME`; tests/FLAKY.md has a line for each such name. Nothing else is run twice.

When all of it has passed on a clean tree, the id of that tree (git rev-parse HEAD^{tree}) is in .git/passed.
"""

import argparse
import contextlib
import os
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from test_lib import busy, changed, excerpt, parts, tree  # noqa: E402
from test_lib.ctest import Progress  # noqa: E402
from test_lib.preset import BuildFailed, build  # noqa: E402

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent


def parse_arguments():
    known = [part.name for part in parts.ALL]
    parser = argparse.ArgumentParser(prog="scripts/test", description=__doc__.split("\n\n")[0],
                                     epilog="\n\n".join(__doc__.split("\n\n")[1:]),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="lint and the unit tests of the release build only")
    on_request = ", ".join(part.name for part in parts.ON_REQUEST)
    parser.add_argument("--only", metavar="PART[,PART...]",
                        help=f"these parts only: {', '.join(known)}; without it all run but: {on_request}")
    parser.add_argument("--match", metavar="REGEX", help="only tests with such a name")
    parser.add_argument("--changed", action="store_true",
                        help="only tests that have not passed with the inputs that they have now: their binaries "
                             "(without debug information), scripts and data")
    parser.add_argument("--times", action="store_true", help="list every end-to-end test with its time, slowest first")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="run the tests N times (1)")
    parser.add_argument("--busy", action="store_true", help="beside programs that keep every processor busy")
    arguments = parser.parse_args()
    arguments.parts = parts.PARTS
    if arguments.quick:
        arguments.parts = [part for part in parts.ALL if part.quick]
    if arguments.only:
        wanted = arguments.only.split(",")
        unknown = [name for name in wanted if name not in known]
        if unknown:
            parser.error(f"there is no part '{unknown[0]}': use one of {', '.join(known)}")
        arguments.parts = [part for part in parts.ALL if part.name in wanted]
    if arguments.repeat < 1:
        parser.error(f"--repeat {arguments.repeat}: give a number from 1 on")
    return arguments


class Run:
    """One run over the parts: what it found, and how long each step took."""

    def __init__(self, logs, arguments):
        self.logs = logs
        self.arguments = arguments
        self.started = time.monotonic()
        self.passed = 0
        self.failures = []  # (part, name, words)
        self.flaky = []  # (name, words)
        self.skipped = []  # (name, words)
        self.steps = []  # (step, seconds)
        self.times = []  # (seconds, name) of end-to-end tests

    @contextlib.contextmanager
    def step(self, name):
        began = time.monotonic()
        print(f"== {name} ({began - self.started:.0f} s)", flush=True)
        try:
            yield
        finally:
            self.steps.append((name, time.monotonic() - began))

    def part(self, part):
        for preset in part.presets:
            with self.step(f"build {preset}"):
                try:
                    build(REPOSITORY, preset, self.logs, part.targets)
                except BuildFailed as failure:
                    print(excerpt.tail(failure.output, 40))
                    self.failures.append((part.name, f"the {preset} build", str(failure)))
                    return
        with self.step(part.name):
            outcome = part.run(REPOSITORY, self.logs, Progress(), self.arguments)
        self.passed += outcome.passed
        self.failures += [(part.name, *failure) for failure in outcome.failures]
        self.flaky += outcome.flaky
        self.skipped += outcome.skipped
        self.times += outcome.times
        print(f"   {outcome.passed} passed, {len(outcome.failures)} failed{outcome.remark}", flush=True)
        for name, output in outcome.outputs:
            print(f"--- {name}\n{excerpt.tail(output, 200)}", flush=True)

    def close(self):
        if self.times:
            total = sum(seconds for seconds, _ in self.times)
            print(f"end-to-end tests: {total:.0f} s in all, one after the other")
            shown = sorted(self.times, reverse=True)
            for seconds, name in shown if self.arguments.times else shown[:5]:
                print(f"   {seconds:6.1f} s  {name}")
        print("steps: " + ", ".join(f"{name} {seconds:.0f} s" for name, seconds in self.steps))
        for name, words in self.skipped:
            print(f"skipped: {name}: {words}")
        for part, name, words in self.failures:
            print(f"failed: {part}: {name}\n{excerpt.indent(words)}")
        for name, words in self.flaky:
            print(f"flaky: {name}\n{excerpt.indent(words)}")
        print(f"== done ({time.monotonic() - self.started:.0f} s); logs in {self.logs}")


def once(arguments):
    """One run; its counts: passed, failed, skipped."""
    logs = pathlib.Path(tempfile.mkdtemp(prefix="ferry-test."))
    whole = arguments.parts == parts.PARTS and not arguments.match and not arguments.changed
    before = tree.clean_tree(REPOSITORY) if whole else None
    run = Run(logs, arguments)
    for part in arguments.parts:
        run.part(part)
    run.close()
    if whole and not run.failures and run.passed:
        if before is not None and tree.clean_tree(REPOSITORY) == before:
            print(f"tree {before} has passed: {tree.write_passed(REPOSITORY, before)}")
        else:
            print("the tree is not clean, or was changed meanwhile: .git/passed stays as it was")
    return run.passed, len(run.failures), len(run.skipped)


def main():
    arguments = parse_arguments()
    os.chdir(REPOSITORY)
    asks_for_more = any(part in parts.ON_REQUEST for part in arguments.parts)  # than a whole run
    if arguments.changed and not asks_for_more and tree.has_passed(REPOSITORY):
        print(f"this tree has passed as a whole ({tree.passed_file(REPOSITORY)}): nothing to run")
        return 0
    counts = []
    with busy.processors() if arguments.busy else contextlib.nullcontext():
        for number in range(1, arguments.repeat + 1):
            if arguments.repeat > 1:
                print(f"==== run {number} of {arguments.repeat}{' on a busy machine' if arguments.busy else ''}")
            counts.append(once(arguments))
    passed, failed, skipped = map(sum, zip(*counts))
    if not passed and not failed and not arguments.changed:
        print("scripts/test: no test was run", file=sys.stderr)
        return 1
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
