"""Which tests have passed with just the inputs that they have now.

A test's inputs are its command (programs, scripts, files), the files that its properties name, the files in its folder
that are neither C++ nor other tests, and the scripts that its script reads. An end-to-end test has the lab and all
programs of the build as well. Of a program, those parts count that are loaded into memory: another comment in its
source changes nothing.
"""

import hashlib
import json
import pathlib
import re
import struct

ALLOCATED = 2  # SHF_ALLOC
NO_BITS = 8  # SHT_NOBITS
SOURCE = re.compile(r"^\s*(?:source|\.) \"\$\(?.*?/([\w./-]+\.sh)\"", re.M)
NOT_BESIDE = {".cc", ".h", ".txt", ".pyc"}


def loaded(content):
    """The sections of an ELF file that are loaded, but for its build id; any other file as a whole."""
    if content[:6] != b"\x7fELF\x02\x01":
        return content
    offset, = struct.unpack_from("<Q", content, 0x28)
    size, count, names = struct.unpack_from("<HHH", content, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", content, offset + k * size) for k in range(count)]
    parts = []
    for name, kind, flags, _, at, length in sections:
        label = content[sections[names][4] + name:].split(b"\0", 1)[0] if name else b""
        if flags & ALLOCATED and kind != NO_BITS and label != b".note.gnu.build-id":
            parts += [label, content[at:at + length]]
    return b"\0".join(parts)


class Inputs:
    """The inputs of the tests in one build folder, and with which of them each passed last."""

    def __init__(self, repository, folder):
        self.repository = pathlib.Path(repository)
        self.folder = pathlib.Path(folder)
        self.record = self.folder / "passed.json"
        self.last = json.loads(self.record.read_text()) if self.record.exists() else {}
        self.digests = {}

    def have_passed(self, test):
        return self.last.get(test["name"]) == self.of(test)

    def passed(self, tests):
        self.last.update({test["name"]: self.of(test) for test in tests})
        self.record.write_text(json.dumps(self.last, indent=1, sort_keys=True))

    def of(self, test):
        properties = {each["name"]: each["value"] for each in test["properties"]}
        room = self.repository / pathlib.Path(properties["WORKING_DIRECTORY"]).relative_to(self.folder)
        files = {path for word in test.get("command", []) if (path := pathlib.Path(word)).exists()}
        files |= set(map(pathlib.Path, properties.get("REQUIRED_FILES", [])))
        files |= set(self.beside(room))
        for script in [path for path in files if path.is_file() and path.read_bytes()[:2] == b"#!"]:
            files |= self.sourced(script)
        if "e2e" in properties.get("LABELS", []):
            files.add(self.repository / "lab")
            files |= {path for path in (self.folder / "bin").rglob("*") if not path.name.endswith("_test")}
        said = [word for word in properties.get("ENVIRONMENT", []) if not word.startswith("FERRY_LAB=")]
        whole = hashlib.sha256(json.dumps([test.get("command"), said]).encode())
        for path in sorted(files):
            name = path.relative_to(self.repository) if path.is_relative_to(self.repository) else path
            whole.update(str(name).encode())
            whole.update(self.digest(path))
        return whole.hexdigest()

    @staticmethod
    def beside(room):
        for path in room.rglob("*"):
            if path.is_file() and path.suffix not in NOT_BESIDE and not path.name.endswith("_test.sh"):
                yield path

    def sourced(self, script):
        """The scripts that a script reads with `source`, and those that these read."""
        found, left = set(), [script]
        while left:
            reader = left.pop()
            for name in SOURCE.findall(reader.read_text(errors="replace")):
                path = (reader.parent / name).resolve()
                if path.is_file() and path not in found:
                    found.add(path)
                    left.append(path)
        return found

    def digest(self, path):
        if path not in self.digests:
            if path.is_dir():
                content = b"".join(self.digest(each) for each in sorted(path.rglob("*")) if each.is_file())
            else:
                content = loaded(path.read_bytes()) if path.is_file() else b""
            self.digests[path] = hashlib.sha256(content).digest()
        return self.digests[path]
