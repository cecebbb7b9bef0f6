"""Runs tests by ctest and reads what it writes about them."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree

EVERYTHING = "100000000"  # bytes of a test's output
START = re.compile(r"^ *Start +\d+: (\S+)")
NUMBER = re.compile(r"^ *(\d+)/(\d+) Test +#\d+: (\S+)")
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
    """How far the tests are. A terminal has it in a line; elsewhere a failure is told when it comes, and every some
    minutes what runs, so that the log of a run that was ended says where that was."""

    def __init__(self, every=300):
        self.shown = sys.stdout.isatty()
        self.every = every  # seconds
        self.lock = threading.Lock()
        self.running = {}  # since when, by name
        self.ended = self.all = 0
        self.over = None  # an event while tests run

    def begin(self, tests):
        self.over = threading.Event()
        self.ended, self.all = 0, tests
        if not self.shown:
            threading.Thread(target=self.tell_sometimes, args=(self.over,), daemon=True).start()

    def tell_sometimes(self, over):
        while not over.wait(self.every):
            print(self.words(), flush=True)

    def words(self):
        with self.lock:
            now = time.monotonic()
            running = ", ".join(f"{name} for {now - since:.0f} s" for name, since in self.running.items())
            return f"   {self.ended} of {self.all} have ended; running: {running or 'none'}"

    def line(self, line):
        with self.lock:
            if started := START.match(line):
                self.running[started[1]] = time.monotonic()
            found = NUMBER.match(line)
            if not found:
                return
            self.ended = int(found[1])
            self.running.pop(found[3], None)
        if self.shown:
            print(f"\r\033[K   {found[1]} of {found[2]}: {line.split(':', 1)[-1].strip()[:90]}", end="", flush=True)
        elif (why := WHY.search(line)) and why[2].strip() != "Skipped":
            print(f"   {found[3]}: {why[2].strip()}", flush=True)

    def end(self):
        self.over.set()
        with self.lock:
            self.running.clear()
        if self.shown:
            print("\r\033[K", end="", flush=True)


def known(folder, selection):
    """The tests that a selection (words for ctest) names, as ctest describes them."""
    listed = subprocess.run(["ctest", "--test-dir", folder, "--show-only=json-v1", *selection], check=True,
                            capture_output=True, text=True)
    return json.loads(listed.stdout)["tests"]


def comes_first(session):
    """What the tests of `session` do comes before the programs that they start in sessions of their own and that keep
    all processors busy: without it most of the time of a run is those programs'. Root may have that, of a kernel with
    autogroups."""
    with contextlib.suppress(OSError):
        pathlib.Path(f"/proc/{session}/autogroup").write_text("-10")


def run(folder, selection, jobs, log, progress):
    """The results of the tests that `selection` names; `log` and its .xml keep what ctest said."""
    report = log.with_suffix(".xml")
    report.unlink(missing_ok=True)
    command = ["ctest", "--test-dir", str(folder), "-j", str(jobs), "--output-junit", str(report), "--no-tests=error",
               "--test-output-size-passed", EVERYTHING, "--test-output-size-failed", EVERYTHING, *selection]
    why = {}
    progress.begin(len(known(folder, selection)))
    try:
        with open(log, "w", buffering=1) as output, \
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                 text=True, errors="replace", start_new_session=True) as ctest:
            comes_first(ctest.pid)
            try:
                for line in ctest.stdout:
                    output.write(line)
                    progress.line(line)
                    why.update(WHY.findall(line))
            except KeyboardInterrupt:
                os.killpg(ctest.pid, signal.SIGINT)  # the terminal told only our own session
                raise
    finally:
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
