"""A build of one of the presets in CMakePresets.json."""

import subprocess


class BuildFailed(Exception):
    def __init__(self, words, output):
        super().__init__(words)
        self.output = output


def build(repository, preset, logs, targets):
    """Configures and builds these targets, or without any the preset's own; the output goes to build-PRESET.log in the
    folder `logs`."""
    log = logs / f"build-{preset}.log"
    with open(log, "w") as output:
        chosen = ["--target", *targets] if targets else []
        for command in (["cmake", "--preset", preset], ["cmake", "--build", "--preset", preset, *chosen]):
            output.write("$ " + " ".join(command) + "\n")
            output.flush()
            status = subprocess.run(command, cwd=repository, stdout=output, stderr=subprocess.STDOUT,
                                    stdin=subprocess.DEVNULL).returncode
            if status != 0:
                raise BuildFailed(f"`{' '.join(command)}` failed; {log} has all of its output", log.read_text())
