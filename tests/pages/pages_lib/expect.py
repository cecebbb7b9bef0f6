"""Whether a command prints what the page says it prints.

A page shows one run: numbers, times and ids differ in the next one. So a line of the page is like a line of the output
if their words agree, in order: a number that is not the end of a name stands for any number, an id (six or more
hexadecimal digits) for any id, white space for any. 0 stands for 0 alone: a page says `0 lost` because it matters.
`...` in a line stands for anything, and as a line of its own for any lines. Lines of the output that the page does not
have are too many.
"""

import re

NUMBER = r"[-+−]?\d[\d.,:]*"
ID = r"(?:0x)?[0-9a-f]{6,}"
TOKEN = re.compile(rf"(?P<id>\b(?=[0-9a-fx]*\d)(?=[0-9]*[a-fx]){ID}\b)|(?P<zero>(?<![\w.,:/])0(?![\w.,:/]))|"
                   rf"(?P<number>(?<![A-Za-z])(?<![A-Za-z]\d){NUMBER})|"
                   r"(?P<any>\.\.\.)|(?P<space>\s+)|(?P<other>.)")
PATTERNS = {"id": ID, "zero": r"0", "number": NUMBER, "any": ".*", "space": r"\s+"}
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


def pattern_of(line):
    pattern = "".join(PATTERNS.get(match.lastgroup) or re.escape(match[0]) for match in TOKEN.finditer(line.strip()))
    return re.compile(rf"\s*{pattern}\s*")


def cleaned(text):
    return [line.rstrip() for line in ESCAPES.sub("", text).split("\n") if line.strip()]


def difference(expected, text):
    """None, or the line of the page that the output does not have, or the line that it has too many."""
    output = cleaned(text)
    wanted = [line for line in expected if line.strip()]
    index = 0
    for number, line in enumerate(wanted):
        if line.strip() == "...":
            if number + 1 == len(wanted):
                return None
            following = pattern_of(wanted[number + 1])
            while index < len(output) and not following.fullmatch(output[index]):
                index += 1
            continue
        if index == len(output):
            return f"it does not print: {line}"
        if not pattern_of(line).fullmatch(output[index]):
            return f"it prints: {output[index]}\n  and not:   {line}"
        index += 1
    return f"it prints more than the page says: {output[index]}" if index < len(output) else None
