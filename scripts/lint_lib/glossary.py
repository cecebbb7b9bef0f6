"""Each term of docs/glossary.md is there once, in the order of the alphabet, and another page or src/ uses it."""

import re

from .finding import Finding

PAGE = "docs/glossary.md"
TERM = re.compile(r"\* \*\*(.+?)\*\*: ")


def check(repository, files):
    if PAGE not in files:
        return []
    findings, before = [], ""
    text = "\n".join(repository.text(name) for name in repository.files() if _may_use(name))
    for number, line in enumerate(repository.text(PAGE).split("\n"), 1):
        if not (match := TERM.match(line)):
            continue
        term = match[1]
        if term.lower() == before:
            findings.append(Finding(PAGE, number, f"'{term}' is there twice"))
        elif term.lower() < before:
            findings.append(Finding(PAGE, number, f"'{term}' comes before '{before}' in the alphabet"))
        words = r"\s+".join(map(re.escape, term.split()))
        if not re.search(rf"(?<!\w){words}", text, re.IGNORECASE):
            findings.append(Finding(PAGE, number, f"no page and no source uses '{term}': take it out"))
        before = term.lower()
    return findings


def _may_use(name):
    return name != PAGE and (name.endswith(".md") and name.startswith(("docs/", "README")) or name.startswith("src/"))
