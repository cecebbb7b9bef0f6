"""Moves a container of the lab with CRIU alone, in the order that ferryd uses: what a move costs without RDMA."""

import json
import os
import pathlib
import shutil
import subprocess
import time

from .failure import Failure

_CRIU = "/opt/ferry/bin/criu"
_HOOK = pathlib.Path(__file__).resolve().parents[2] / "lab/network-hook"

_DUMP_SCRIPT = """#!/bin/sh
case $CRTOOLS_SCRIPT_ACTION in
  pre-dump) echo began >{image}/event ;;
  network-lock) exec {hook} deactivate {instance} ;;
  network-unlock) exec {hook} activate {instance} ;;
  post-dump)
    echo dumped >{image}/event
    read -r verdict <{image}/verdict
    [ "$verdict" = commit ]
    ;;
esac
"""
_RESTORE_SCRIPT = """#!/bin/sh
[ "$CRTOOLS_SCRIPT_ACTION" = post-restore ] || exit 0
echo restored >{image}/event
read -r verdict <{image}/verdict
[ "$verdict" = commit ] && exec {hook} activate {instance}
"""


def _must(host, argv, stdin=None):
    done = subprocess.run(host.command(argv), input=stdin, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"{argv[0]} on {host.name} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _prepare_folder(host, image, script):
    folder = host.file(image)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("event", "verdict"):
        os.mkfifo(folder / name)
    (folder / "script").write_text(script)
    (folder / "script").chmod(0o755)


def _await(host, image, criu, log, expected):
    """Until the action script reports, or CRIU ends."""
    event = os.open(host.file(f"{image}/event"), os.O_RDONLY | os.O_NONBLOCK)
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                text = os.read(event, 64).decode().strip()
            except BlockingIOError:
                text = ""
            if text == expected:
                return
            if criu.poll() not in (None, 0):
                break
            time.sleep(0.0002)
    finally:
        os.close(event)
    tail = host.file(f"{image}/{log}")
    end = tail.read_text(errors="replace").splitlines()[-1:] if tail.exists() else []
    raise Failure(f"CRIU on {host.name} failed: {' '.join(end) or 'no log'}")


def _verdict(host, image):
    host.file(f"{image}/verdict").write_text("commit\n")


def _write_config(host, config):
    folder = host.file(f"/run/ferry/containers/{config['name']}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json.new").write_text(json.dumps(config))
    (folder / "config.json.new").rename(folder / "config.json")


def _start(host, argv, **options):
    return subprocess.Popen(host.enter(argv), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL, start_new_session=True, **options)


def move(container, to, number):
    """Milliseconds of each part, as in the report of `ferry move`: dump (from the last moment before the freeze to all
    written), transfer, restore (from CRIU's start to all restored and frozen), commit. `number` is different for each
    move of the container."""
    source, old = container.host, container.config()
    new = json.loads(_must(to, [_HOOK, "prepare", container.name], json.dumps(old)))
    _write_config(to, new)
    image = f"/run/ferry/move/{container.name}.{number}"
    _prepare_folder(source, image, _DUMP_SCRIPT.format(hook=_HOOK, instance=old["instance"], image=image))
    netns = source.file(old["netns"]).stat().st_ino

    dump = _start(source, [_CRIU, "dump", "--tree", old["pid"], "--images-dir", image, "--tcp-established",
                           "--external", f"net[{netns}]:ferry-net", "--manage-cgroups=ignore", "--network-lock",
                           "skip", "--action-script", f"{image}/script", "-v2", "--log-file", "dump.log"])
    _await(source, image, dump, "dump.log", "began")
    marks = [time.monotonic()]
    _await(source, image, dump, "dump.log", "dumped")
    marks.append(time.monotonic())

    _prepare_folder(to, image, _RESTORE_SCRIPT.format(hook=_HOOK, instance=new["instance"], image=image))
    for file in source.file(image).iterdir():
        if file.name not in ("event", "verdict", "script"):
            shutil.copyfile(file, to.file(f"{image}/{file.name}"))
    log = f"/run/ferry/containers/{container.name}/log"
    shutil.copyfile(source.file(log), to.file(log))
    marks.append(time.monotonic())

    with open(to.file(new["netns"])) as netns_file:
        restore = _start(to, [_CRIU, "restore", "--images-dir", image, "--restore-detached", "--pidfile", "init.pid",
                              "--tcp-established", "--inherit-fd", f"fd[{netns_file.fileno()}]:ferry-net",
                              "--manage-cgroups=ignore", "--action-script", f"{image}/script", "-v2", "--log-file",
                              "restore.log"], pass_fds=[netns_file.fileno()])
    _await(to, image, restore, "restore.log", "restored")
    marks.append(time.monotonic())

    _write_config(source, old | {"state": "moved", "pid": 0})
    _verdict(to, image)
    if restore.wait() != 0:
        raise Failure(f"CRIU on {to.name} could not finish the restore of {container.name}")
    marks.append(time.monotonic())
    _verdict(source, image)
    dump.wait()
    _write_config(to, new | {"state": "running", "pid": int(to.file(f"{image}/init.pid").read_text())})
    _must(source, [_HOOK, "release", old["instance"]])
    for host in (source, to):
        shutil.rmtree(host.file(image))
    container.host = to
    names = ("dump_ms", "transfer_ms", "restore_ms", "commit_ms")
    return {name: (end - begin) * 1e3 for name, begin, end in zip(names, marks, marks[1:])}
