#!/usr/bin/python3
"""Restores a container of the lab from an image with CRIU and stands for its parent, as ferryd does.

usage: restore.py CRIU IMAGE ACTION_SCRIPT CONFIG

Runs in the destination host's namespaces. The image is that of `criu dump` with the container's network namespace
external under the name ferry-net; CONFIG is the config.json that network-hook prepare printed. When the program ends,
its exit status (128 + signal if killed) goes to the file `exit` beside CONFIG.
"""

import ctypes
import json
import os
import pathlib
import subprocess
import sys

PR_SET_CHILD_SUBREAPER = 36


def main():
    criu, image, script, config_path = sys.argv[1:]
    config_path = pathlib.Path(config_path)
    config = json.loads(config_path.read_text())
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    netns = os.open(config["netns"], os.O_RDONLY)
    command = [criu, "restore", "--images-dir", image, "--restore-detached", "--pidfile", "init.pid",
               "--tcp-established", "--inherit-fd", f"fd[{netns}]:ferry-net", "--manage-cgroups=ignore",
               "--action-script", script, "-v2", "--log-file", "restore.log"]
    status = subprocess.run(command, pass_fds=[netns], stdin=subprocess.DEVNULL).returncode
    os.close(netns)
    if status != 0:
        sys.exit(status)
    pid = int(pathlib.Path(image, "init.pid").read_text())
    config.update(pid=pid, state="running")
    config_path.write_text(json.dumps(config))
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    config = json.loads(config_path.read_text())
    if config["state"] == "running":
        config_path.write_text(json.dumps(config | {"pid": 0, "state": "exited"}))
        config_path.with_name("exit").write_text(f"{code if code >= 0 else 128 - code}\n")


main()
