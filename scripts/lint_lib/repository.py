"""The files that git knows: tracked ones, and new ones that are not ignored."""

import functools
import os
import pathlib
import re
import subprocess

from .failure import Failure

CXX = (".h", ".cc", ".c")
SHELL = re.compile(r"#!\s*\S*/(env\s+)?(ba|da)?sh\b|(?s:.*?)^# shellcheck shell=", re.MULTILINE)
SHELL_LINES = 10  # at the head of a file, in which it says that it is a shell script


class Repository:
    def __init__(self, folder):
        self.folder = folder.resolve()
        self._files = [name for name in self._git("ls-files", "-z", "--cached", "--others",
                                                  "--exclude-standard").split("\0")
                       if name and self._is_file(self.folder / name)]

    def _is_file(self, path):
        return path.is_file() and not path.is_symlink()

    def _git(self, *arguments):
        try:
            result = subprocess.run(["git", "-C", self.folder, *arguments], capture_output=True, check=False)
        except FileNotFoundError:
            raise Failure("git is missing: run scripts/setup") from None
        if result.returncode == 0:
            return os.fsdecode(result.stdout)
        error = os.fsdecode(result.stderr).strip()
        if "dubious ownership" in error:
            raise Failure(f"git does not read {self.folder}, which belongs to another user: run this as its owner, or "
                          f"run: git config --global --add safe.directory {self.folder}")
        raise Failure(f"git {arguments[0]} failed in {self.folder}: {error.splitlines()[-1] if error else 'no reason'}")

    def common_folder(self):
        """git's own folder, which all worktrees share."""
        return self.folder / self._git("rev-parse", "--git-common-dir").rstrip("\n")

    def files(self):
        return self._files

    def chosen(self, arguments):
        """The files that the arguments name, themselves or by a folder; all of them without arguments."""
        if not arguments:
            return self._files
        chosen = {}
        for argument in arguments:
            path = pathlib.Path(argument).resolve()
            found = [name for name in self._files if path == self.folder / name or path in (self.folder / name).parents]
            if not found:
                raise Failure(f"{argument}: no such file, or git does not know it; give files of {self.folder}")
            chosen.update(dict.fromkeys(found))
        return list(chosen)

    @functools.cache
    def read(self, name):
        return (self.folder / name).read_bytes()

    def text(self, name):
        """A byte that is not UTF-8 is one character."""
        return self.read(name).decode(errors="surrogateescape")

    def is_binary(self, name):
        return b"\0" in self.read(name)

    def is_cxx(self, name):
        return name.endswith(CXX)

    def is_shell(self, name):
        head = b"\n".join(self.read(name).split(b"\n", SHELL_LINES)[:SHELL_LINES])
        return b"\0" not in head and SHELL.match(head.decode(errors="replace")) is not None
