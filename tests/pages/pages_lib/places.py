"""Where commands of pages run.

here      this machine, in namespaces of its own (inside.sh): what is written is gone with them; the checkout is the
          current folder, with the build in build/release; host prompts (`h1$ `) are hosts of the lab `ferry lab up`
machines  the virtual machines of scripts/vmlab that FERRY_VMLAB names, with Ferry's packages; without a prompt: h1

Commands of one host are as in one shell: each finds the folder and the exported variables of the one before.
"""

import os
import pathlib
import shlex
import subprocess
import tempfile
import time

from .fault import Fault

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
PATIENCE = 300
STATE = "/run/ferry-page"  # on each host
# An error ends the inner shell at once, so that its status is the command's. What it leaves in the background has the
# file as its output, not the pipe of this connection, whose end nobody would see.
SCRIPT = '''
exec </dev/null
(
  if [ -e {state} ]; then . {state}; else cd {folder}; fi
  set -e -o pipefail
  eval "$text"
  {{ export -p; printf 'cd %q\\n' "$PWD"; }} >{state}
) >{state}.output 2>&1
status=$?
cat {state}.output
rm {state}.output
exit $status
'''


class Here:
    name = "here"

    def words(self, host):
        return ["bash"] if host is None else [str(REPOSITORY / "lab/lab"), "exec", host, "--", "bash"]

    def folder(self):
        return str(REPOSITORY)


class Machines:
    name = "machines"

    def words(self, host):
        return [str(REPOSITORY / "scripts/vmlab"), "exec", host or "h1", "--", "bash", "--norc"]

    def folder(self):
        return "/root"


PLACES = {place.name: place for place in (Here(), Machines())}


def run(place, host, text):
    """Runs a command, and returns its exit status and output. What it leaves in the background may write on."""
    script = f"text={shlex.quote(text)}\n" + SCRIPT.format(state=STATE, folder=place.folder())
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output, \
            tempfile.TemporaryFile("w+", encoding="utf-8") as source:
        source.write(script)
        source.seek(0)
        words = [*place.words(host), "-c", 'eval "$(cat)"']
        process = subprocess.Popen(words, stdin=source, stdout=output, stderr=subprocess.STDOUT, cwd=REPOSITORY,
                                   env=os.environ | {"TERM": "dumb"}, start_new_session=True)
        try:
            status = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            status = None
        output.seek(0)
        return status, output.read()


def repeat(place, host, text):
    """Until the command succeeds."""
    deadline, pause = time.monotonic() + PATIENCE, 0.1
    while True:
        status, output = run(place, host, text)
        if status == 0:
            return
        if time.monotonic() > deadline:
            raise Fault(f"not within {PATIENCE} s: {text}: {output.strip()[-300:]}")
        time.sleep(pause)
        pause = min(pause * 2, 2)
