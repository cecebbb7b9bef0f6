"""What a GoogleTest program says: how many of its tests passed, which failed, in which one it ended."""

import re

RAN = re.compile(r"^\[==========\] Running (\d+) tests? from", re.M)
PASSED = re.compile(r"^\[  PASSED  \] (\d+) tests?", re.M)
FAILED = re.compile(r"^\[  FAILED  \] ([\w/]+\.[\w/]+)", re.M)
SKIPPED = re.compile(r"^\[  SKIPPED \] ([\w/]+\.[\w/]+)", re.M)
BEGAN = re.compile(r"^\[ RUN      \] ([\w/]+\.[\w/]+)", re.M)
ENDED = re.compile(r"^\[ +(?:OK|FAILED|SKIPPED) +\] ([\w/]+\.[\w/]+)", re.M)


class Report:
    """passed: a number; skipped: names; failures: (test, its output)."""

    def __init__(self, output, succeeded):
        self.skipped = sorted(set(SKIPPED.findall(output)))
        ended = set(ENDED.findall(output))
        failed = sorted(set(FAILED.findall(output)))
        counted = PASSED.search(output)
        # A program that ended in the middle counted nothing.
        self.passed = int(counted[1]) if counted else len(ended) - len(failed) - len(self.skipped)
        self.failures = [(name, section(output, name)) for name in failed]
        unfinished = [name for name in BEGAN.findall(output) if name not in ended]
        if unfinished:
            planned = RAN.search(output)
            behind = int(planned[1]) - len(ended) - 1 if planned else 0
            self.failures.append((unfinished[-1], section(output, unfinished[-1]) +
                                  f"\nthe program ended in this test; {behind} tests behind it did not run"))
        elif not RAN.search(output) or self.passed + len(self.skipped) + len(failed) == 0:
            self.failures.append(("no test ran", output))
        elif not succeeded and not failed:
            self.failures.append(("every test passed, but the program failed", output))


def section(output, name):
    """What was printed while one test ran."""
    found = re.search(rf"^\[ RUN      \] {re.escape(name)}$(.*?)(?=^\[ (?:RUN| +OK) |\Z)", output, re.M | re.S)
    return found[1].strip("\n") if found else output
