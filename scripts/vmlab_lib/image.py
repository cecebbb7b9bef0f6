"""The image of a machine: Debian 12 with its own kernel, made once and kept under a digest of what it is made of."""

import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile

from demo_lib.failure import Failure

RECIPE = pathlib.Path(__file__).resolve().parent / "image"
CACHE = pathlib.Path("/var/cache/ferry/vmlab")
CRIU = pathlib.Path("/opt/ferry")
GET_CRIU = pathlib.Path(__file__).resolve().parents[1] / "get-criu"
SUITE = "bookworm"
DISK_GIB = 4  # of the machine; the image takes what it is made of
NEEDED = ("mmdebstrap", "mke2fs", "qemu-img", "ssh-keygen")

# dpkg leaves these out.
EXCLUDED = ("/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/man/*")


class Image:
    """Where its files are: `disk` (ext4), `kernel`, `initrd`, `key` (root's), `known_hosts`."""

    def __init__(self, folder):
        self.disk = folder / "disk"
        self.kernel = folder / "vmlinuz"
        self.initrd = folder / "initrd"
        self.key = folder / "key"
        self.known_hosts = folder / "known_hosts"


def image(progress, kept):
    """The image of the recipe as it is now. Makes it if need be, which takes a minute; `progress` is told. Images of
    former recipes are removed but for the folders `kept`, which machines have their disks over."""
    folder = CACHE / _digest()
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _make(folder, progress)
        for other in CACHE.iterdir():
            if other.is_dir() and other != folder and other not in kept:
                shutil.rmtree(other)
    return Image(folder)


def _digest():
    """Of the recipe and of CRIU; Debian's updates of the packages make no new image."""
    digest = hashlib.sha256()
    for file in sorted(path for path in [*RECIPE.rglob("*"), pathlib.Path(__file__)] if path.is_file()):
        digest.update(f"{file.name} {file.stat().st_size} ".encode() + file.read_bytes())
    digest.update((CRIU / "bin/criu").read_bytes())
    return digest.hexdigest()[:12]


def _make(folder, progress):
    for command in NEEDED:
        if not shutil.which(command):
            raise Failure(f"{command} is missing: run scripts/setup")
    progress("making the machines' image, once")
    with tempfile.TemporaryDirectory(prefix="making.", dir=CACHE) as name:
        making = pathlib.Path(name)
        boot, root = making / "boot", making / "root"
        boot.mkdir()
        _run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "vmlab", "-f", boot / "key"])
        _run(["mmdebstrap", "--quiet", "--variant=minbase", "--aptopt=APT::Install-Recommends \"false\"",
              *(f"--dpkgopt=path-exclude={pattern}" for pattern in EXCLUDED),
              f"--include={','.join(_packages())}", f"--customize-hook={RECIPE}/customize \"$1\"",
              SUITE, root, _mirror()],
             RECIPE=RECIPE, BOOT=boot, KEY=boot / "key.pub", CRIU=CRIU)
        progress("writing the machines' disk")
        _run(["mke2fs", "-q", "-t", "ext4", "-m", "0", "-O", "^metadata_csum", "-E",
              "lazy_itable_init=1,lazy_journal_init=1", "-d", root, boot / "disk", f"{DISK_GIB}G"])
        boot.chmod(0o700)
        boot.rename(folder)


def _packages():
    lines = (RECIPE / "packages").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def _mirror():
    """The mirror that apt already uses for Debian itself."""
    return subprocess.run([GET_CRIU, "--mirror"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def _run(command, **environment):
    result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, errors="replace", check=False,
                            env=os.environ | {name: str(value) for name, value in environment.items()})
    if result.returncode != 0:
        end = " / ".join(line for line in result.stdout.splitlines()[-5:] if line.strip())
        raise Failure(f"cannot make the machines' image: {command[0]} failed: {end or 'it said nothing'}")
