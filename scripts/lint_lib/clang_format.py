"""clang-format agrees with the C++ files, by the repository's .clang-format."""

import os
import re
import subprocess

from . import tools
from .failure import Failure
from .finding import Finding

TOOL = "clang-format-14"  # others break lines elsewhere
FOUND = re.compile(r"(.+?):(\d+):\d+: (?:error|warning): .*clang-format")


def check(repository, files):
    chosen = [name for name in files if repository.is_cxx(name)]
    if not chosen:
        return []
    tool = tools.find(TOOL)
    parts = os.cpu_count()

    def run(part):
        result = subprocess.run([tool, "--dry-run", "-Werror", "--", *part], cwd=repository.folder,
                                capture_output=True, text=True, check=False)
        found = {(match[1], int(match[2])) for match in map(FOUND.match, result.stderr.split("\n")) if match}
        if result.returncode != 0 and not found:
            raise Failure(f"{TOOL} failed: {result.stderr.strip() or result.returncode}")
        return found

    found = set().union(*tools.for_each(run, [chosen[i::parts] for i in range(parts) if chosen[i::parts]]))
    return [Finding(name, line, f"not as {TOOL} has it: run {TOOL} -i {name}") for name, line in found]
