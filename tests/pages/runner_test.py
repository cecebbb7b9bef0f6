#!/usr/bin/python3
"""What pages_test says of pages: it runs each block, and fails where a page is wrong."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

from pages_lib import blocks, elsewhere, expect  # noqa: E402
from pages_lib.fault import Fault  # noqa: E402

PAGES_TEST = pathlib.Path(__file__).resolve().parent / "pages_test"


def run(page, *options):
    return subprocess.run([PAGES_TEST, *options, "-"], input=page, capture_output=True, text=True, check=False)


class Pages(unittest.TestCase):
    def passes(self, page, *says):
        done = run(page)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for text in says:
            self.assertIn(text, done.stdout)

    def fails(self, page, *says):
        done = run(page)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        for text in says:
            self.assertIn(text, done.stdout)

    def test_commands_are_run_in_order_as_in_one_shell(self):
        self.passes("```sh\nexport WORD=hello\ncd /etc\n```\nand\n"
                    "```sh\necho $WORD $PWD\n```\n```text\nhello /etc\n```\n",
                    "2 blocks: 2 run, 0 elsewhere, 0 not at all")

    def test_a_wrong_command(self):
        self.fails("a\n\n```sh\ntrue\nferri move\ntrue\n```\n", "page:3", "exit status 127", "ferri: command not found")

    def test_a_wrong_command_between_others(self):
        self.fails("```sh\necho before\nfalse\necho after\n```\n", "exit status 1")

    def test_a_filter_that_chooses_no_test(self):
        page = "```sh\nbuild/release/bin/base_test --gtest_filter='{}'\n```\n"
        self.passes(page.format("Log.*"))
        self.fails(page.format("NoSuch.*"), "page:1", "runs no test")

    def test_a_wrong_expectation(self):
        self.fails("```sh\necho moved\n```\n```text\nnot moved\n```\n", "it prints: moved", "and not:   not moved")
        self.fails("```console\n$ echo moved\nnot moved\n```\n", "page:2", "it prints: moved")

    def test_output_that_the_page_lacks(self):
        self.fails("```sh\necho one; echo two\n```\n```text\none\n```\n", "more than the page says: two")
        self.fails("```sh\necho one\n```\n```text\none\ntwo\n```\n", "does not print: two")

    def test_an_unmarked_block_that_cannot_run(self):
        self.fails("```sh\nsystemctl restart nosuch.service\n```\n", "page:1")
        self.fails("```console\nh7$ true\n```\n", "page:2")
        self.fails("```bash\ntrue\n```\n", "page:1", "language 'bash'")
        self.fails("```\ntrue\n```\n", "page:1", "language ''")
        self.fails("text\n\n    true\n", "page:3", "by indentation")
        self.fails("```console\ntrue\n```\n", "page:2", "no prompt")

    def test_a_command_that_the_page_lets_fail(self):
        page = "<!-- test fails -->\n```console\n$ true\n$ {}\n```\n"
        self.passes(page.format("false"))
        self.fails(page.format("true"), "page:4", "succeeded, and the page says that it fails")

    def test_blocks_that_are_not_run_are_counted_with_the_reason(self):
        self.passes("<!-- test not run: nobody has the hardware -->\n```sh\nfalse\n```\n\n"
                    "<!-- test run by: model.move -->\n```sh\nmodel/check move\n```\n\n"
                    "<!-- test on: machines -->\n```console\nh1$ false\n```\n",
                    "not run: page:2: nobody has the hardware", "by model.move: page:7", "on machines: page:12",
                    "3 blocks: 0 run, 2 elsewhere, 1 not at all")

    def test_a_block_that_names_no_test(self):
        self.fails("<!-- test run by: nosuch -->\n```sh\ntrue\n```\n", "page:2: no test is called nosuch")

    def test_a_block_whose_commands_another_test_has(self):
        self.passes("<!-- test run by: model.move model.without_PROBE -->\n"
                    "```sh\nmodel/check move; sudo model/check move \\\n  -DNO_PROBE  # a guard\n```\n", "1 elsewhere")
        self.passes("<!-- test\nrun by: migrate.refused\nwith: db=...\n-->\n"
                    "```console\nh1# ferry move db --to h2\nferry: not moved\n```\n", "1 elsewhere")
        self.passes("<!-- test run by: machines -->\n```sh\nferry ca init\n```\n", "1 elsewhere")  # by a page

    def test_a_block_whose_commands_another_test_lacks(self):
        self.fails("<!-- test run by: model.move -->\n```sh\nmodel/check move\nmodel/check move -DNO_PROBE\n```\n",
                   "FAILED: page:4: model/check move -DNO_PROBE: model.move has no such command\n")
        self.fails("<!-- test run by: model.without_PROBE -->\n```sh\nmodel/check -DNO_PROBE move\n```\n",
                   "page:3: model/check -DNO_PROBE move")
        self.fails("<!-- test run by: migrate.refused -->\n```console\n$ ferry move nosuch --to h2\n```\n",
                   "page:3: ferry move nosuch --to h2: migrate.refused has no such command")
        self.fails("<!-- test run by: machines -->\n```sh\nferry ca nosuch\n```\n", "page:3: ferry ca nosuch")

    def test_a_block_that_any_test_would_have(self):
        self.fails("<!-- test run by: model.move -->\n```sh\n# model/check\n```\n", "page:2: a block without a command")
        self.fails("<!-- test\nrun by: model.move\nwith: model/check=...\n-->\n```sh\nmodel/check\n```\n",
                   "page:6: ...: any command is like this")

    def test_marks_that_say_nothing(self):
        self.fails("<!-- test on: moon -->\n```sh\ntrue\n```\n", "no place 'moon'")
        self.fails("<!-- test not run -->\n```sh\ntrue\n```\n", "'not run' is no mark")
        self.fails("<!-- test not run: a\nrun by: pages.runner\n-->\n```sh\ntrue\n```\n", "give one of these marks")
        self.fails("<!-- test fails -->\n\nText.\n\n```sh\ntrue\n```\n", "before no block")
        self.fails("<!-- test with: NAME=x -->\n```sh\ntrue\n```\n", "the block has no NAME")
        self.fails("<!-- test fails -->\n```text\ntrue\n```\n", "which nobody runs")

    def test_what_stands_for_something_else(self):
        self.passes("<!-- test\nwith: NAME=b c\nbefore: export A=a\nuntil: test -e /tmp/there\n-->\n"
                    "```sh\necho $A NAME NAMES\n(sleep 0.3; touch /tmp/there) &\n```\n```text\na b c NAMES\n```\n")
        self.passes("<!-- test as: echo short -->\n```sh\nsleep 1000000\n```\n```text\nshort\n```\n")

    def test_nothing_is_left(self):
        names = [f"{folder}/ferry-pages-runner" for folder in ("/etc", "/tmp", "/var/lib", "/run", "/root")]
        names.append(str(PAGES_TEST.parents[2] / "ferry-pages-runner"))
        all_names = " ".join(names)
        self.passes(f"```sh\ntouch {all_names}\nsleep 4711.4711 &\n```\n```sh\nls {all_names} >/dev/null\n```\n")
        self.assertEqual([name for name in names if os.path.exists(name)], [])
        self.assertEqual(subprocess.run(["pgrep", "-f", "^sleep 4711.4711"], check=False).returncode, 1)


class Blocks(unittest.TestCase):
    def test_a_list_has_blocks_too(self):
        block, = blocks.read("p", "* one\n\n  ```sh\n  true\n    false\n  ```\n")
        self.assertEqual(block.lines, ["true", "  false"])

    def test_a_console_block(self):
        block, = blocks.read("p", "```console\nh2# one \\\n  two\nout\n$ three\n```\n")
        self.assertEqual([(each.host, each.text, each.output) for each in block.commands()],
                         [("h2", "one \\\n  two", ["out"]), (None, "three", None)])


class CommandsOfATest(unittest.TestCase):
    def words(self, *command):
        return [" ".join(words) for words in elsewhere.commands_of([str(word) for word in command])]

    def test_a_script_has_what_it_runs_and_not_what_it_says(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "test.sh"
            script.write_text("#!/bin/bash\n# ferry top\n"
                              "on h1 \"$ferry\" move \"$1\" \\\n  --to \"${2}\" | jq .x >\"$work/out\" # ferry ps\n"
                              "[[ $(vm h2 'ferry ps') == x ]] || fail \"ferry doctor ends with $?\"\n"
                              "await 'ferry run works' ok\n")
            self.assertEqual(self.words(script, "group"),
                             ["test.sh group", "on h1 ferry move 1 --to 2", "jq .x out", "vm h2 ferry ps",
                              "[[ ... == x ]]", "ok"])

    def test_a_script_has_what_the_scripts_have_that_it_reads(self):
        words = self.words(PAGES_TEST.parents[1] / "machines/machines_test.sh")
        self.assertIn("vmlab up 2", words)  # tests/machines/lib.sh
        self.assertIn("vmlab console 1", words)  # tests/common.sh, which that one reads

    def test_other_programs_have_their_command_alone(self):
        self.assertEqual(self.words(PAGES_TEST.parents[2] / "scripts/chaos", "--seed", "1"), ["chaos --seed 1"])
        self.assertEqual(self.words(), [""])  # one that is not built


class BlocksForMachines(unittest.TestCase):
    PAGE = "<!-- test on: machines -->\n```console\nh1$ true\n```\n"

    def test_a_page_that_no_test_runs_there(self):
        elsewhere.check(blocks.read("README.md", self.PAGE))
        elsewhere.check(blocks.read("docs/upgrade.md", self.PAGE))
        with self.assertRaisesRegex(Fault, "docs/README.md:2: no test has this page run on machines"):
            elsewhere.check(blocks.read("docs/README.md", self.PAGE))


class Expectations(unittest.TestCase):
    def same(self, page, output):
        self.assertIsNone(expect.difference(page.split("\n"), output))

    def differs(self, page, output):
        self.assertIsNotNone(expect.difference(page.split("\n"), output))

    def test_numbers_and_ids_differ_from_run_to_run(self):
        self.same("blackout 148.7 ms, QPN 0x0001c4, build 4be1d7f2", "blackout 9 ms, QPN 0x00ffc4, build 00aa11bb")
        self.same("h1  10.77.1.1:4791  -3", "h1   10.78.20.1:4791 -17")
        self.differs("on h1", "on h2")
        self.same("178235 iterations", "9823 iterations")
        self.differs("blackout 148.7 ms", "blackout none ms")
        self.differs("client moved h2 -> h3", "server moved h2 -> h3")

    def test_zero_is_zero(self):
        self.same("0 lost, 12 sent", "0 lost, 7 sent")
        self.differs("0 lost, 12 sent", "5 lost, 7 sent")

    def test_what_is_left_out(self):
        self.same("one\n...\nfour", "one\ntwo\nthree\nfour\n")
        self.same("one\n...", "one\n")
        self.same("fw_ver: ... end", "fw_ver: 1.2 x end")
        self.differs("one\n...\nfive", "one\ntwo\nthree\nfour\n")


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("skipped: the commands of pages need root")
        sys.exit(77)
    unittest.main()
