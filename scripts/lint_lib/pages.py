"""What is the same for the checks of pages: where a Markdown file has its headings and links, but for code."""

import re

FENCE = re.compile(r" *```")
HEADING = re.compile(r"#+ +(.*)")
CODE = re.compile(r"`[^`]*`")
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def prose(text):
    """(number, line) of each line that is in no fenced block."""
    within = False
    for number, line in enumerate(text.split("\n"), 1):
        if FENCE.match(line):
            within = not within
        elif not within:
            yield number, line


def anchors(text):
    """By which a link names a heading, as GitHub has it."""
    found = {}
    for _, line in prose(text):
        if match := HEADING.match(line):
            words = LINK.sub(r"\1", match[1]).strip().lower()
            name = "".join(each for each in words if each.isalnum() or each in " -_").replace(" ", "-")
            found[name] = found.get(name, -1) + 1
    return {f"{name}-{number}" if number else name for name, last in found.items() for number in range(last + 1)}
