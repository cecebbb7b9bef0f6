"""No line is longer than 120 characters: a reader sees all of it in half a screen."""

import re

from .finding import Finding

LONGEST = 120
# Data, which nobody reads by lines.
DATA = re.compile(r"(^|/)(corpus|golden)/")
# A URL cannot be broken, but it can stand alone, behind no more than the mark of a comment or of a list.
LONE_URL = re.compile(r"\s*(#+|//|/?\*+|-)?\s*<?[a-z]+://\S+\s*$")


def check(repository, files):
    findings = []
    for name in files:
        if DATA.search(name) or repository.is_binary(name):
            continue
        for number, line in enumerate(repository.text(name).split("\n"), 1):
            length = len(line.rstrip("\r"))
            if length > LONGEST and not LONE_URL.match(line):
                findings.append(Finding(name, number, f"{length} characters: break the line, {LONGEST} are the most"))
    return findings
