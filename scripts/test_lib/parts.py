"""The parts of a test run: what is built for each, which tests it has, how many run at a time."""

import os
import subprocess

from test_lib import changed, ctest, excerpt, gtest

PROCESSORS = len(os.sched_getaffinity(0))
UNIT_JOBS = max(2, PROCESSORS)
END_TO_END_JOBS = max(3, PROCESSORS * 3 // 2)  # they wait more than they compute


class Outcome:
    def __init__(self):
        self.passed = 0
        self.failures = []  # (name, words)
        self.flaky = []  # (name, words)
        self.skipped = []  # (name, words)
        self.times = []  # (seconds, name)
        self.outputs = []  # (name, all that a failed test printed)
        self.remark = ""

    def fail(self, name, output, words=""):
        self.failures.append((name, "\n".join(filter(None, [words, excerpt.wrong(output)]))))
        self.outputs.append((name, output))


class Lint:
    """scripts/lint: rooms, lengths of lines, formats."""

    name = "lint"
    presets = []
    targets = []
    quick = True

    def run(self, repository, logs, _progress, _arguments):
        outcome = Outcome()
        done = subprocess.run([repository / "scripts/lint"], capture_output=True, text=True)
        (logs / "lint.log").write_text(done.stdout + done.stderr)
        if done.returncode == 0:
            outcome.passed = 1
        else:
            outcome.fail("scripts/lint", done.stdout + done.stderr)
        return outcome


class Suite:
    """Tests of one build, which ctest runs: of these targets, or of those that the preset builds. They may need other
    builds as well."""

    def __init__(self, name, preset_name, labels, jobs=UNIT_JOBS, end_to_end=False, quick=False, needs=(), targets=()):
        self.name = name
        self.preset = preset_name
        self.presets = [*needs, preset_name]
        self.labels = labels
        self.jobs = jobs
        self.end_to_end = end_to_end  # timed, and a failed test is run once more
        self.quick = quick
        self.targets = targets

    def run(self, repository, logs, progress, arguments):
        outcome = Outcome()
        folder = repository / "build" / self.preset
        selection = self.labels + (["-R", arguments.match] if arguments.match else [])
        tests = ctest.known(folder, selection)
        inputs = changed.Inputs(repository, folder)
        if arguments.changed:
            outcome.remark = f"; {len(tests)} are known"
            tests = [test for test in tests if not inputs.have_passed(test)]
            selection = ctest.named(test["name"] for test in tests)
        if not tests and (arguments.changed or arguments.match):
            return outcome
        log = logs / f"{self.name}.log"
        results = ctest.run(folder, selection, self.jobs, log, progress)
        if len(results) != len(tests):
            outcome.fail("ctest", log.read_text(), f"ctest told of {len(results)} of {len(tests)} tests")
        for result in results:
            self.judge(result, outcome, lambda name: self.again(folder, name, logs, progress))
        good = {result.name for result in results if result.status == "passed"}
        inputs.passed([test for test in tests if test["name"] in good])
        return outcome

    def again(self, folder, name, logs, progress):
        """A failed end-to-end test once more, alone: whether it passes now."""
        results = ctest.run(folder, ctest.named([name]), 1, logs / f"again-{name}.log", progress)
        return bool(results) and all(result.status == "passed" for result in results)

    def judge(self, result, outcome, passes_alone):
        if self.end_to_end:
            outcome.times.append((result.seconds, result.name))
        if result.status == "skipped":
            outcome.skipped.append((result.name, excerpt.tail(result.output, 1)))
        elif "[==========] Running " in result.output:
            self.judge_gtest(result, outcome)
        elif result.status == "passed":
            outcome.passed += 1
        elif self.end_to_end and passes_alone(result.name):
            outcome.passed += 1
            outcome.flaky.append((result.name, "\n".join([result.words, excerpt.wrong(result.output)])))
            outcome.outputs.append((f"{result.name}, which passed when it ran again", result.output))
        else:
            outcome.fail(result.name, result.output, result.words)

    @staticmethod
    def judge_gtest(result, outcome):
        report = gtest.Report(result.output, result.status == "passed")
        outcome.passed += report.passed
        outcome.skipped += [(name, "the test says so") for name in report.skipped]
        for name, output in report.failures:
            outcome.fail(f"{name} ({result.name})", output, result.words)


NOT_END_TO_END = ["-LE", "e2e|seldom"]
WITH_UNIT_TESTS = ["all", "unit_tests"]
# What a whole run has must be through in 90 minutes also on a slow machine of two processors, with nothing built.
PARTS = [
    Lint(),
    Suite("checks", "release", ["-L", "unit", "-LE", "gtest"], quick=True),
    Suite("end-to-end", "release", ["-L", "e2e", "-LE", "long"], END_TO_END_JOBS, end_to_end=True),
    Suite("asan+ubsan", "asan+ubsan", NOT_END_TO_END, targets=WITH_UNIT_TESTS),
    Suite("tsan", "tsan", NOT_END_TO_END, targets=WITH_UNIT_TESTS),
    Suite("moves under tsan", "tsan", ["-L", "e2e"], END_TO_END_JOBS, needs=["release"]),
]
ON_REQUEST = [
    Suite("unit", "release", ["-L", "gtest"], quick=True, targets=WITH_UNIT_TESTS),
    Suite("seldom", "tsan", ["-L", "seldom"], targets=["all", "seldom_tests"]),
    Suite("corpus", "fuzz", ["-L", "corpus"]),
    Suite("long", "release", ["-L", "long"], END_TO_END_JOBS, end_to_end=True),
]
ALL = PARTS + ON_REQUEST
