"""Whether a test that a page names (`run by: TEST`) has the commands of the page, and whether a test has the page's
blocks for machines run there (`run_page PAGE`).

A command of the page has words. The test has it if one of the test's own commands has these words, in this order; it
may have others in between. The following does not count, on either side: quotes, `$`, braces and backslashes, so that
"$ferry" is `ferry`; the folder of a file; `sudo`; what comes after a `#`.

A reader has other hosts and files than the test. So these words of the page stand for anything: hosts (h1, h1:4780,
root@h2), numbers, IMAGE and other words in capitals, and `...`. What else is a name of the page's own is given by
`with: web=...`.

Whether the command succeeds in the test, and in which part of a script it is, does not matter.

A test's own commands are its command in ctest; if that is a shell script, each command of that and of the scripts that
it reads (`# shellcheck source=FILE`); and if it has pages run on machines (`run_page PAGE`), each command of their
blocks for these. What it only says or looks for is none: the quoted word behind `ok`, `fail`, `await` and their like.
"""

import functools
import json
import pathlib
import re
import subprocess

from . import blocks, places
from .fault import Fault

BUILD = places.REPOSITORY / "build/release"
COMMENT = re.compile(r"(?:^|\s)#.*")
SAID = re.compile(r"""(?<![\w-])(?:ok|not_ok|bad|fail|fails|die|echo|printf|await|says|lacks|shows)\s+"""
                  r"""(?:"(?:[^"\\]|\\.)*"|'[^']*')""")
INNER = re.compile(r"\$\(([^()]*)\)")
SEPARATOR = re.compile(r"[;&|()`]+")
IGNORED = re.compile(r"""["'$\\{}]""")
ANYTHING = re.compile(r"(?:\w+@)?h\d(?::\S*)?|\d[\d.]*|[A-Z]+|\.\.\.")
SHELL = re.compile(rb"#!.*\b(?:ba)?sh\n")
SOURCE = re.compile(r"^ *# shellcheck source=(\S+)$", re.MULTILINE)
PAGE = re.compile(r"^ *run_page (\S+)", re.MULTILINE)


def check(page_blocks):
    """Of all blocks of a page that run elsewhere."""
    for block in page_blocks:
        if "run by" in block.marks:
            _check_commands(block)
        elif block.place() == places.Machines.name and "not run" not in block.marks:
            _check_machines(block)


def _check_commands(block):
    names, has = block.marks["run by"].split(), []
    for name in names:
        found = [command for test, command in _tests().items() if test == name or test.startswith(name + ".")]
        if not found:
            raise Fault(f"{block.where()}: no test is called {name}")
        has += [words for command in found for words in commands_of(command)]
    commands = list(_of_block(block))
    if not commands:
        raise Fault(f"{block.where()}: a block without a command")
    for line, command, words in commands:
        wanted = [each for word in words if word != "sudo" and not ANYTHING.fullmatch(word)
                  if not ANYTHING.fullmatch(each := _without_folder(word))]
        if not wanted:
            raise Fault(f"{block.page}:{line}: {command}: any command is like this")
        if not any(_in_order(wanted, each) for each in has):
            raise Fault(f"{block.page}:{line}: {command}: {' and '.join(names)} has no such command")


def _check_machines(block):
    """What comes from standard input is no page of the repository, and nobody else runs it."""
    if (places.REPOSITORY / block.page).is_file() and block.page not in _pages_on_machines():
        raise Fault(f"{block.where()}: no test has this page run on machines (run_page {block.page})")


@functools.cache
def _tests():
    """The command of each test."""
    listed = subprocess.run(["ctest", "--test-dir", BUILD, "--show-only=json-v1"], capture_output=True, text=True,
                            check=True).stdout
    return {test["name"]: test.get("command", []) for test in json.loads(listed)["tests"]}


@functools.cache
def _pages_on_machines():
    return {page for command in _tests().values() for text in _scripts(command) for page in PAGE.findall(text)}


def commands_of(command):
    """The words of each command of a test."""
    found = [command]
    for text in _scripts(command):
        found += [IGNORED.sub("", each).split() for _, each in _commands(text)]
        for page in PAGE.findall(text):
            for block in blocks.read(page, (places.REPOSITORY / page).read_text(encoding="utf-8")):
                if block.place() == places.Machines.name:
                    found += [words for _, _, words in _of_block(block)]
    return [[_without_folder(word) for word in words] for words in found]


def _of_block(block):
    """(line, command, its words) of each command."""
    for command in block.commands():
        first = command.line + (block.language == "sh")
        for offset, text in _commands(command.text):
            yield first + offset, text, IGNORED.sub("", text).split()


def _scripts(command):
    """The texts of a test that is a shell script, and of the scripts that it reads."""
    seen, left = set(), [path for path in map(pathlib.Path, command[:1]) if _is_shell(path)]
    while left:
        path = left.pop()
        if path not in seen:
            seen.add(path)
            text = path.read_text(encoding="utf-8")
            yield text
            left += [places.REPOSITORY / name for name in SOURCE.findall(text)]


def _is_shell(path):
    return path.is_file() and SHELL.match(path.read_bytes()[:100]) is not None


def _commands(text):
    """(offset of its line, command) of each simple command of a script, those in $(...) first."""
    for offset, line in _lines(text):
        parts = []
        while match := INNER.search(line):
            parts.append(match[1])
            line = INNER.sub("...", line, count=1)
        for part in parts + [line]:
            yield from ((offset, each.strip()) for each in SEPARATOR.split(part) if each.strip())


def _lines(text):
    """(offset, line) of each line, with those that continue it, without comments and what is only said."""
    joined, first = "", 0
    for offset, line in enumerate(text.split("\n")):
        if not joined:
            first = offset
        if line.endswith("\\"):
            joined += line[:-1] + " "
            continue
        yield first, SAID.sub("", COMMENT.sub("", joined + line))
        joined = ""


def _without_folder(word):
    return word if word.startswith("-") else word.rstrip("/").rsplit("/", 1)[-1]


def _in_order(wanted, words):
    left = iter(words)
    return all(word in left for word in wanted)
