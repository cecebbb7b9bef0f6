"""What of a test's output is worth showing."""

import re

WRONG = re.compile(r"FAILED|Failure|ERROR|rror:|Sanitizer")
LINES = 9
WIDTH = 200


def tail(text, lines):
    return "\n".join(text.splitlines()[-lines:])


def wrong(output):
    """The lines that say what went wrong: from the first that looks so, else the last ones."""
    lines = [line for line in output.splitlines() if line.strip()]
    for number, line in enumerate(lines):
        if WRONG.search(line):
            return "\n".join(each[:WIDTH] for each in lines[number:number + LINES])
    return "\n".join(each[:WIDTH] for each in lines[-LINES:])


def indent(text):
    return "\n".join("    " + line for line in text.splitlines())
