"""scripts/test on a project of its own, whose tests are shell scripts that play what is to be judged."""

import argparse
import contextlib
import io
import pathlib
import subprocess
import sys
import tempfile
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPOSITORY / "scripts"))

from test_lib import changed, gtest, parts, tree  # noqa: E402
from test_lib.ctest import Progress  # noqa: E402

CRASHED = """[==========] Running 4 tests from 1 test suite.
[ RUN      ] Wire.First
[       OK ] Wire.First (0 ms)
[ RUN      ] Wire.Second
wire.cc:12: assertion failed
"""
MIXED = """[==========] Running 3 tests from 1 test suite.
[ RUN      ] Wire.First
[       OK ] Wire.First (0 ms)
[ RUN      ] Wire.Second
wire_test.cc:7: Failure
Expected equality of these values:
  1
  2
[  FAILED  ] Wire.Second (3 ms)
[ RUN      ] Wire.Third
no IPv6 here
[  SKIPPED ] Wire.Third (0 ms)
[==========] 3 tests from 1 test suite ran. (3 ms total)
[  PASSED  ] 1 test.
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] Wire.Third
[  FAILED  ] 1 test, listed below:
[  FAILED  ] Wire.Second

 1 FAILED TEST
"""


class GoogleTest(unittest.TestCase):
    def test_each_test_counts_once(self):
        report = gtest.Report(MIXED, False)
        self.assertEqual(report.passed, 1)
        self.assertEqual(report.skipped, ["Wire.Third"])
        self.assertEqual([name for name, _ in report.failures], ["Wire.Second"])
        self.assertIn("wire_test.cc:7: Failure", report.failures[0][1])
        self.assertNotIn("no IPv6", report.failures[0][1])

    def test_a_program_that_ends_in_a_test_fails_there(self):
        report = gtest.Report(CRASHED, False)
        self.assertEqual(report.passed, 1)
        (name, words), = report.failures
        self.assertEqual(name, "Wire.Second")
        self.assertIn("assertion failed", words)
        self.assertIn("2 tests behind it did not run", words)

    def test_no_test_and_a_failure_at_the_end_are_failures(self):
        empty = "[==========] Running 0 tests from 0 test suites.\n[==========] 0 tests ran.\n[  PASSED  ] 0 tests.\n"
        self.assertEqual(len(gtest.Report(empty, True).failures), 1)
        good = "[==========] Running 1 test from 1 test suite.\n[ RUN      ] A.B\n[       OK ] A.B (0 ms)\n" \
               "[==========] 1 test from 1 test suite ran.\n[  PASSED  ] 1 test.\n"
        self.assertEqual(gtest.Report(good, True).failures, [])
        self.assertEqual(len(gtest.Report(good + "LeakSanitizer: detected memory leaks\n", False).failures), 1)


class Project(unittest.TestCase):
    """A project with a build folder, in which ctest runs scripts."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        self.tests = self.root / "tests"
        self.tests.mkdir()
        (self.root / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(played NONE)\n"
                                                  "enable_testing()\nadd_subdirectory(tests)\n")
        self.lines = []

    def script(self, name, text):
        path = self.tests / f"{name}_test.sh"
        path.write_text("#!/bin/sh\n" + text + "\n")
        path.chmod(0o755)
        return path

    def add(self, name, text, properties="LABELS e2e"):
        self.script(name, text)
        self.lines += [f"add_test(NAME {name} COMMAND ${{CMAKE_CURRENT_SOURCE_DIR}}/{name}_test.sh)",
                       f"set_tests_properties({name} PROPERTIES SKIP_RETURN_CODE 77 {properties})"]

    def run_part(self, end_to_end, progress=None, labels=("-L", "e2e"), **options):
        (self.tests / "CMakeLists.txt").write_text("\n".join(self.lines) + "\n")
        subprocess.run(["cmake", "-S", self.root, "-B", self.root / "build/played"], check=True, capture_output=True)
        part = parts.Suite("played", "played", list(labels), 2, end_to_end)
        arguments = argparse.Namespace(**({"match": None, "changed": False} | options))
        return part.run(self.root, self.root, progress or Progress(), arguments)

    def test_an_end_to_end_test_that_passes_alone_is_flaky(self):
        self.add("shy", f'[ -e {self.root}/shy ] && exit; touch {self.root}/shy; echo "FAILED: too many here"; exit 1')
        self.add("bad", "echo FAILED: as ever; exit 1")
        self.add("good", "echo fine")
        self.add("without", "echo skipped: no such program; exit 77")
        outcome = self.run_part(end_to_end=True)
        self.assertEqual(outcome.passed, 2)
        self.assertEqual([name for name, _ in outcome.failures], ["bad"])
        (name, words), = outcome.flaky
        self.assertEqual(name, "shy")
        self.assertIn("FAILED: too many here", words)
        self.assertEqual(outcome.skipped, [("without", "skipped: no such program")])
        self.assertEqual(len(outcome.times), 4)

    def test_any_other_test_is_run_once(self):
        self.add("shy", f"[ -e {self.root}/shy ] && exit; touch {self.root}/shy; exit 1")
        outcome = self.run_part(end_to_end=False)
        self.assertEqual([name for name, _ in outcome.failures], ["shy"])
        self.assertEqual((outcome.passed, outcome.flaky), (0, []))

    def test_a_long_test_is_run_on_request_only(self):
        self.add("short", "true")
        self.add("long", "true", 'LABELS "e2e;long"')
        for part, name in (("end-to-end", "short"), ("long", "long")):
            labels, = (each.labels for each in parts.ALL if each.name == part)
            self.assertEqual([name for _, name in self.run_part(True, labels=labels).times], [name])

    def test_a_test_that_takes_too_long_fails(self):
        self.add("slow", "sleep 60", "LABELS e2e TIMEOUT 1")
        outcome = self.run_part(end_to_end=False)
        self.assertEqual([name for name, _ in outcome.failures], ["slow"])
        self.assertIn("Timeout", outcome.failures[0][1])

    def test_a_log_says_what_runs_and_what_has_failed(self):
        self.add("bad", "exit 1")
        self.add("slow", f"until [ -e {self.root}/told ]; do sleep 0.1; done", "LABELS e2e TIMEOUT 60")
        root = self.root

        class Log(io.StringIO):
            def write(self, text):
                if "1 of 2 have ended; running: slow for" in text:
                    (root / "told").touch()
                return super().write(text)

        with contextlib.redirect_stdout(Log()) as log:
            self.run_part(end_to_end=False, progress=Progress(every=0.1))
        self.assertIn("   bad: Failed\n", log.getvalue())

    def test_changed_runs_what_has_not_passed_so(self):
        self.add("reads", "true", f"LABELS e2e REQUIRED_FILES {self.root}/data")
        self.add("other", "true")
        (self.root / "data").mkdir()
        (self.root / "data/file").write_text("1")
        self.assertEqual(self.run_part(False, changed=True).passed, 2)
        self.assertEqual(self.run_part(False, changed=True).passed, 0)
        (self.root / "data/file").write_text("2")
        self.assertEqual(self.run_part(False, changed=True).passed, 1)
        self.script("other", "exit 1")
        for _ in range(2):  # one that fails is run again
            self.assertEqual([name for name, _ in self.run_part(False, changed=True).failures], ["other"])

    def test_changed_sees_what_a_script_reads(self):
        library = self.root / "lib/common.sh"
        library.parent.mkdir()
        library.write_text(": 1\n")
        self.add("reads", '. "$(dirname "$0")/../lib/common.sh"')
        self.assertEqual(self.run_part(False, changed=True).passed, 1)
        self.assertEqual(self.run_part(False, changed=True).passed, 0)
        library.write_text(": 2\n")
        self.assertEqual(self.run_part(False, changed=True).passed, 1)


class Programs(unittest.TestCase):
    def test_of_a_program_counts_what_is_loaded(self):
        with tempfile.TemporaryDirectory() as folder:
            digests = []
            for name, text in (("a", "int main() { return 0; }"), ("b", "\n\nint main() { return 0; } // a comment"),
                               ("c", "int main() { return 1; }")):
                program = pathlib.Path(folder, name)
                subprocess.run(["cc", "-g", "-O1", "-x", "c", "-", "-o", program], input=text, text=True, check=True)
                digests.append(changed.loaded(program.read_bytes()))
            self.assertEqual(digests[0], digests[1])
            self.assertNotEqual(digests[0], digests[2])


class Tree(unittest.TestCase):
    def test_only_a_clean_tree_has_passed(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)

            def git(*words):
                subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=root, check=True,
                               capture_output=True)
            git("init")
            (root / "file").write_text("1\n")
            git("add", "file")
            git("commit", "-m", "one")
            self.assertFalse(tree.has_passed(root))
            tree.write_passed(root, tree.clean_tree(root))
            self.assertTrue(tree.has_passed(root))
            (root / "file").write_text("2\n")
            self.assertIsNone(tree.clean_tree(root))
            self.assertFalse(tree.has_passed(root))
            git("commit", "-am", "two")
            self.assertFalse(tree.has_passed(root))


if __name__ == "__main__":
    unittest.main()
