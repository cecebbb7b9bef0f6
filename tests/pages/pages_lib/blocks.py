"""The fenced blocks of a page, with the marks that say how a test runs them.

A block has a language. `sh` is commands. `console` is commands behind prompts (`$ `, `# `, or with a host `h1$ `,
`h1# `), each with the output that follows it. `text` right after a block of `sh` is what that prints. Blocks of other
known languages are no commands. Unknown languages are refused, and so are blocks by indentation, which have none.

Marks are an HTML comment right before the block, a line for each:

    <!-- test
    on: machines
    until: ss -Hltn 'sport = :18515' | grep -q .
    -->

    on: PLACE            where it runs (places.py); without it: here
    not run: REASON      no test can run it
    run by: TEST...      other tests, by their names in ctest, have these commands, which is checked (elsewhere.py)
    as: COMMAND          what the test runs in place of the block, which takes longer
    with: NAME=VALUE     the word NAME stands for VALUE in the block; may be repeated
    needs: COMMAND       is run before all, outside of the namespaces, where there is a network; 77 skips the page
    before: COMMAND      is run before; may be repeated; with a prompt (`h2$ COMMAND`) on that host
    until: COMMAND       the same, after the block, until it succeeds
    on each: HOST...     the block runs on each of these hosts
    fails                its last command fails
"""

import dataclasses
import re

from .fault import Fault

COMMANDS = ("sh", "console")
OTHERS = ("text", "json", "yaml", "c", "mermaid", "ini")
FENCE = re.compile(r"( *)```(.*)$")
INDENTED = re.compile(r"(?: {4}|\t)\s*\S")
LIST_ITEM = re.compile(r"( *)(?:[*-]|\d+\.) ")
PROMPT = re.compile(r"(?:(h\d)(?::\S+)?)?([$#]) (.*)$")
MARK = re.compile(r"([a-z]+(?: [a-z]+)?)(?:: *(.*))?$")
ONCE, REPEATED, PLAIN = ("on", "on each", "not run", "run by", "as", "needs"), ("with", "before", "until"), ("fails",)


@dataclasses.dataclass
class Command:
    host: str | None  # None: that of the place
    text: str
    line: int
    output: list | None = None  # the lines that it prints; None: the page does not say


@dataclasses.dataclass
class Block:
    page: str
    line: int
    language: str
    lines: list
    marks: dict
    output: list | None = None  # of the `text` block behind it

    def where(self):
        return f"{self.page}:{self.line}"

    def place(self):
        return self.marks.get("on", "here")

    def commands(self):
        """A block of `sh` is one command, so that its lines may belong together."""
        replaced = [self._replaced(line) for line in self.lines]
        if self.language == "sh":
            return [Command(None, self.marks.get("as", "\n".join(replaced)), self.line, self.output)]
        commands = []
        for number, line in enumerate(replaced, self.line + 1):
            match = PROMPT.match(line)
            if match:
                commands.append(Command(match[1], match[3], number, []))
            elif not commands:
                raise Fault(f"{self.page}:{number}: begins with no prompt: write $, # or h1$ before the command")
            elif commands[-1].text.endswith("\\"):
                commands[-1].text += "\n" + line
            else:
                commands[-1].output.append(line)
        for command in commands:
            command.output = command.output or None
        return commands

    def _replaced(self, line):
        for each in self.marks.get("with", ()):
            name, _, value = each.partition("=")
            line = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", lambda _, value=value: value, line)
        return line


def hosted(text):
    """(host, command) of a mark's command."""
    match = PROMPT.match(text)
    return (match[1], match[3]) if match else (None, text)


def read(page, text):
    """All blocks of a page that have commands, each with what it prints."""
    blocks, last, lines = [], None, text.split("\n")
    marks, index, in_list, blank = None, 0, False, True
    while index < len(lines):
        line = lines[index]
        fence = FENCE.match(line)
        if line.lstrip().startswith("<!-- test"):
            marks, index = _marks(page, lines, index)
            continue
        if fence:
            block, index = _block(page, lines, index, fence, marks)
            _check(block)
            if block.language in COMMANDS:
                blocks.append(block)
            elif block.language == "text" and last is not None and last.language == "sh":
                last.output = block.lines
            last, marks = block, None
            continue
        if line.strip():
            if marks is not None:
                raise Fault(f"{page}:{index + 1}: marks of a test before no block: put them right before it")
            in_list = LIST_ITEM.match(line) is not None or (in_list and line.startswith(" "))
            if blank and not in_list and INDENTED.match(line):
                raise Fault(f"{page}:{index + 1}: a block by indentation: fence it, and say its language")
            if not line.startswith("<!--"):
                last = None
        blank = not line.strip()
        index += 1
    return blocks


def _marks(page, lines, index):
    first, text = index, ""
    while True:
        text += lines[index].strip() + "\n"
        index += 1
        if "-->" in text:
            break
        if index == len(lines):
            raise Fault(f"{page}:{first + 1}: the comment has no end")
    marks = {}
    for line in text.split("-->")[0].removeprefix("<!-- test").strip().split("\n"):
        match = MARK.match(line.strip())
        key, value = (match[1], match[2]) if match else (None, None)
        if key in REPEATED and value:
            marks.setdefault(key, []).append(value)
        elif key in ONCE and value and key not in marks or key in PLAIN and value is None:
            marks[key] = value or True
        else:
            raise Fault(f"{page}:{first + 1}: '{line.strip()}' is no mark, or there twice; {__name__} has them")
    return marks, index


def _block(page, lines, index, fence, marks):
    first, indent = index + 1, len(fence[1])
    index += 1
    content = []
    while index < len(lines) and not re.match(r" *```\s*$", lines[index]):
        content.append(lines[index][indent:] if not lines[index][:indent].strip() else lines[index])
        index += 1
    if index == len(lines):
        raise Fault(f"{page}:{first}: the block has no end")
    return Block(page, first, fence[2].strip(), content, marks or {}), index + 1


def _check(block):
    if block.language not in COMMANDS + OTHERS:
        raise Fault(f"{block.where()}: a block of the language '{block.language}': say one of "
                    f"{', '.join(COMMANDS + OTHERS)}")
    if block.marks and block.language not in COMMANDS:
        raise Fault(f"{block.where()}: marks of a test before a block of {block.language}, which nobody runs")
    if sum(mark in block.marks for mark in ("not run", "run by", "as")) > 1:
        raise Fault(f"{block.where()}: it is run by a test, in a short form, or not at all: give one of these marks")
    for each in block.marks.get("with", ()):
        name = each.partition("=")[0]
        if "=" not in each or not any(name in line for line in block.lines):
            raise Fault(f"{block.where()}: 'with: {each}', and the block has no {name}")
    if block.language == "sh" and not "\n".join(block.lines).strip():
        raise Fault(f"{block.where()}: a block without a command")
