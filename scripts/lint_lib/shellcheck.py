"""shellcheck finds nothing in the shell scripts, with what they source.

It takes seconds for a long script. So the scripts go to all processors, longest first, and one that has passed is not
looked at again until it, what it sources, or shellcheck itself changes.
"""

import posixpath
import re
import subprocess

from . import tools
from .failure import Failure
from .finding import Finding
from .passed import Passed, digest

TOOL = "shellcheck"
OPTIONS = ("--external-sources", "--format=gcc")
SETTINGS = ".shellcheckrc"
SOURCED = re.compile(r'^\s*(?:#\s*shellcheck\s.*\bsource=(\S+)|(?:source|\.)\s+"?([\w./-]+)"?)', re.MULTILINE)
FOUND = re.compile(r"(.+?):(\d+):\d+: \w+: (.*)")


def check(repository, files):
    scripts = [name for name in files if repository.is_shell(name)]
    if not scripts:
        return []
    tool = tools.find(TOOL)
    version = subprocess.run([tool, "--version"], capture_output=True, check=True).stdout
    passed = Passed(repository.common_folder() / "lint" / TOOL)
    digests = {name: _digest(repository, version, name) for name in scripts}
    new = sorted((name for name in scripts if not passed.has(digests[name])),
                 key=lambda name: -len(repository.read(name)))

    def run(name):
        result = subprocess.run([tool, *OPTIONS, "--", name], cwd=repository.folder, capture_output=True, text=True,
                                check=False)
        if result.returncode == 0:
            passed.add(digests[name])
            return []
        found = [Finding(match[1], int(match[2]), f"shellcheck: {match[3]}")
                 for match in map(FOUND.match, result.stdout.split("\n")) if match]
        if not found:
            raise Failure(f"{TOOL} {name} failed: {(result.stderr or result.stdout).strip() or result.returncode}")
        return found

    # One that is sourced by many is told once.
    findings = {finding for found in tools.for_each(run, new) for finding in found}
    passed.forget_old()
    return findings


def _digest(repository, version, name):
    names = [name]
    for each in names:  # grows
        for match in SOURCED.finditer(_text(repository, each)):
            # shellcheck looks from the repository's root, where it runs.
            sourced = posixpath.normpath(match[1] or match[2])
            if sourced not in names:
                names.append(sourced)
    texts = [part.encode(errors="surrogateescape") for each in names for part in (each, _text(repository, each))]
    return digest(version, " ".join(OPTIONS).encode(), _text(repository, SETTINGS).encode(), *texts)


def _text(repository, name):
    return repository.text(name) if (repository.folder / name).is_file() else ""
