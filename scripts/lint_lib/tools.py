"""Runs the tools that others have written, on all processors."""

import concurrent.futures
import os
import shutil

from .failure import Failure


def find(tool):
    path = shutil.which(tool)
    if path is None:
        raise Failure(f"{tool} is missing: run scripts/setup")
    return path


def for_each(function, items):
    """What function says of each item, in their order."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, items))
