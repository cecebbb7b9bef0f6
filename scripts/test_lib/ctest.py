"""Runs tests by ctest and reads what it writes about them."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree

EVERYTHING = "100000000"  # bytes of a test's output
NUMBER = re.compile(r"^ *(\d+)/(\d+) Test")
WHY = re.compile(r" Test +#\d+: (\S+) \.*\*\*\*(.*?) +[\d.]+ sec")  # the report does not tell a timeout from a failure


class Result:
    """One test of ctest's: `status` is passed, failed or skipped."""

    def __init__(self, case, why):
        self.name = case.get("name")
        self.seconds = float(case.get("time") or 0)
        self.output = case.findtext("system-out") or ""
        skipped = case.find("skipped")
        self.words = ""
        if case.get("status") == "run":
            self.status = "passed"
        elif skipped is not None and "SKIP_RETURN_CODE" in (skipped.get("message") or ""):
            self.status = "skipped"
        else:
            self.status = "failed"
            self.words = why or case.get("status")


class Progress:
    """Where somebody looks at a terminal: how many tests have ended."""

    def __init__(self):
        self.shown = sys.stdout.isatty()

    def line(self, line):
        found = NUMBER.match(line)
        if self.shown and found:
            print(f"\r\033[K   {found[1]} of {found[2]}: {line.split(':', 1)[-1].strip()[:90]}", end="", flush=True)

    def end(self):
        if self.shown:
            print("\r\033[K", end="", flush=True)


def known(folder, selection):
    """The tests that a selection (words for ctest) names, as ctest describes them."""
    listed = subprocess.run(["ctest", "--test-dir", folder, "--show-only=json-v1", *selection], check=True,
                            capture_output=True, text=True)
    return json.loads(listed.stdout)["tests"]


def run(folder, selection, jobs, log, progress):
    """The results of the tests that `selection` names; `log` and its .xml keep what ctest said."""
    report = log.with_suffix(".xml")
    report.unlink(missing_ok=True)
    command = ["ctest", "--test-dir", str(folder), "-j", str(jobs), "--output-junit", str(report), "--no-tests=error",
               "--test-output-size-passed", EVERYTHING, "--test-output-size-failed", EVERYTHING, *selection]
    why = {}
    with open(log, "w", buffering=1) as output, \
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                             text=True, errors="replace") as ctest:
        for line in ctest.stdout:
            output.write(line)
            progress.line(line)
            why.update(WHY.findall(line))
    progress.end()
    if not report.exists():
        return []
    return [Result(case, why.get(case.get("name"))) for case in parsed(report).iter("testcase")]


def parsed(report):
    """ctest leaves out what XML does not allow, but for half of a character at a cut."""
    text = report.read_bytes().decode("utf-8", errors="replace")
    return xml.etree.ElementTree.fromstring(re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "?", text))


def named(names):
    """A selection of just these tests."""
    return ["-R", "^(" + "|".join(re.escape(name) for name in names) + ")$"]
