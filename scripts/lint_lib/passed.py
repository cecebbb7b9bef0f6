"""Remembers what has passed, by digests, in git's own folder; what cannot be written there is looked at again."""

import hashlib
import os
import time

KEPT = 30 * 24 * 3600  # seconds that an entry is kept without use


def digest(*parts):
    result = hashlib.sha256()
    for part in parts:
        result.update(b"%d:" % len(part) + part)
    return result.hexdigest()


class Passed:
    """An empty file for each digest, so that two that write at once do not disturb each other."""

    def __init__(self, folder):
        self._folder = folder

    def has(self, name):
        try:
            os.utime(self._folder / name)
        except PermissionError:
            return (self._folder / name).exists()  # another user's
        except OSError:
            return False
        return True

    def add(self, name):
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / name).touch()
        except OSError:
            pass

    def forget_old(self):
        try:
            for path in self._folder.iterdir():
                if path.stat().st_mtime < time.time() - KEPT:
                    path.unlink()
        except OSError:
            pass
