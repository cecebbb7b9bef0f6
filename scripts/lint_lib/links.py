"""A link of a page to another file or heading of the repository leads there."""

import posixpath
import re

from . import pages
from .finding import Finding

TARGET = re.compile(r"\]\(([^)\s]+)\)")
ELSEWHERE = re.compile(r"[a-z]+:")


def check(repository, files):
    findings = []
    for name in files:
        if not name.endswith(".md"):
            continue
        for number, line in pages.prose(repository.text(name)):
            for target in TARGET.findall(pages.CODE.sub("", line)):
                if not ELSEWHERE.match(target) and (text := _missing(repository, name, target)):
                    findings.append(Finding(name, number, text))
    return findings


def _missing(repository, name, target):
    path, _, anchor = target.partition("#")
    file = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
    if not (repository.folder / file).exists():
        return f"the link {target} leads nowhere: there is no {file}"
    if anchor and file in repository.files() and anchor not in pages.anchors(repository.text(file)):
        return f"the link {target} leads nowhere: {file} has no such heading"
    return None
