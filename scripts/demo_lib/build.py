"""Sets the machine up and builds what the scripts run, with a line of progress."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from .failure import Failure

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def release_binaries(progress, targets):
    """The folder with Ferry's binaries: $FERRY_BIN as it is, or the release build of all that users start, and of these
    targets, made now."""
    given = os.environ.get("FERRY_BIN")
    if given:
        return pathlib.Path(given).resolve()
    progress.step("setting up the machine")
    _run([REPOSITORY / "scripts/setup", "--quiet"], "scripts/setup")
    return _build(progress, "release", ["product", *targets])


def unmovable_library(progress, binaries):
    """libferry.so without what makes it movable (FERRY_MOVABLE=OFF), built now, in the folder "unmovable" of
    `binaries`, which hosts of the lab see. Of $FERRY_BIN what is there; None: nothing."""
    library = binaries / "unmovable/libferry.so"
    if os.environ.get("FERRY_BIN"):
        return library if library.exists() else None
    library.parent.mkdir(exist_ok=True)
    shutil.copy2(_build(progress, "release-unmovable", ["ferry"]) / library.name, library)
    return library


def fuzz_targets(progress):
    """The folder with the fuzz targets (preset fuzz), built now."""
    if not shutil.which("clang++"):
        raise Failure("the fuzz targets need clang++; install it: sudo scripts/setup")
    return _build(progress, "fuzz", ["fuzz"])


def _build(progress, preset, targets):
    progress.step(f"configuring the {preset} build")
    _run(["cmake", "--preset", preset], f"cmake --preset {preset}")
    progress.step(f"building Ferry ({preset})")
    _ninja(progress, preset, targets)
    return REPOSITORY / "build" / preset / "bin"


def _end_of(log):
    log.seek(0)
    return "".join(log.readlines()[-25:])


def _run(command, name):
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        status = subprocess.run(command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=log, stderr=log).returncode
        if status != 0:
            raise Failure(f"{name} failed (exit status {status}); the end of its output:\n{_end_of(log)}")


def _ninja(progress, preset, targets):
    command = ["ninja", "-C", f"build/{preset}", *targets]
    environment = os.environ | {"NINJA_STATUS": "[%f/%t] "}
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        process = subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace", env=environment)
        for line in process.stdout:
            log.write(line)
            done = re.match(r"\[(\d+)/(\d+)\]", line)
            if done:
                progress.detail(f"{done[1]} of {done[2]} files")
        if process.wait() != 0:
            raise Failure(f"the {preset} build failed; the end of its output:\n{_end_of(log)}")
