"""A file in src/ROOM includes only from its own room and from rooms below it.

The order is docs/architecture.md's: every indented line under "Rooms" that has names and arrows only, as
"wire → port", says that each room is above the next. "Below" goes on from line to line. A room is a path in src/ and
everything in it that is not another room's: with the rooms "host" and "host/proc", src/host/proc/tree.h belongs to
host/proc. No folder of src/ has more than MOST lines of C++ of its own: a newcomer finds nothing in a larger one. A
room that has more in all its folders has rooms inside, with an order among them.
"""

import posixpath
import re

from .finding import Finding

PAGE = "docs/architecture.md"
HEADING = re.compile(r"#+ +Rooms *$")
ORDER = re.compile(r"(?: {4}|\t)\s*([\w/-]+(?: +→ +[\w/-]+)+)\s*$")
MOST = 3000
INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]+)"')


class Order:
    def __init__(self, text):
        self.lines = {}  # where the page names a room first
        self._below = {}
        self.first_line = 1
        within = False
        for number, line in enumerate(text.split("\n"), 1):
            if line.startswith("#"):
                within = HEADING.match(line) is not None
                if within:
                    self.first_line = number
            elif within and (match := ORDER.match(line)):
                self._add(re.split(r" +→ +", match[1]), number)

    def _add(self, names, line):
        for name in names:
            self.lines.setdefault(name, line)
        for above, below in zip(names, names[1:]):
            self._below.setdefault(above, []).append(below)

    def below(self, room):
        found, waiting = set(), list(self._below.get(room, ()))
        while waiting:
            each = waiting.pop()
            if each not in found:
                found.add(each)
                waiting += self._below.get(each, ())
        return found

    def room_of(self, path):
        """The room of a file or folder, by its path in src/; None: it is in none."""
        while path and path not in self.lines:
            path = posixpath.dirname(path)
        return path or None


def check(repository, files):
    sources = [name for name in files if name.startswith("src/")]
    if not sources and PAGE not in files:
        return []
    if PAGE not in repository.files():
        return [Finding(PAGE, 1, "is not there, and should name the order of the rooms in src/")] if sources else []
    order = Order(repository.text(PAGE))
    findings = _page(order, repository.files()) if PAGE in files else []
    folders = {posixpath.dirname(name) for name in sources}
    findings += _sizes(repository, folders)
    findings += _room_sizes(repository, order, {order.room_of(folder.removeprefix("src/")) for folder in folders})
    for name in sources:
        if repository.is_cxx(name):
            findings += _file(repository, order, name)
    return findings


def _page(order, files):
    """The page names every room that is there, and no other; and the order is one."""
    findings, rooms, strays = [], set(), {}
    for name in files:
        path = posixpath.dirname(name).removeprefix("src/")
        if not name.startswith("src/") or name.count("/") < 2:
            continue
        room = order.room_of(path)
        rooms.add(room)
        if room is None:
            strays.setdefault(path, None)
    findings += [Finding(PAGE, order.first_line, f"names no room for src/{path}: say in its order where it belongs")
                 for path in strays]
    findings += [Finding(PAGE, line, f"names the room {room}, and src/{room} has no file: take it out")
                 for room, line in order.lines.items() if room not in rooms]
    findings += [Finding(PAGE, line, f"the room {room} is below itself: take out one of the arrows")
                 for room, line in order.lines.items() if room in order.below(room)]
    return findings


def _sizes(repository, folders):
    return [Finding(first, 1, f"{folder} has {size} lines, {MOST} are the most: make rooms in it")
            for folder, first, size in _large(repository, folders, posixpath.dirname)]


def _room_sizes(repository, order, rooms):
    def room_of(name):
        return order.room_of(posixpath.dirname(name).removeprefix("src/")) if name.startswith("src/") else None

    return [Finding(first, 1, f"the room {room} has {size} lines, {MOST} are the most without rooms inside: make some")
            for room, first, size in _large(repository, rooms - {None}, room_of)
            if not any(other.startswith(f"{room}/") for other in order.lines)]


def _large(repository, places, place_of):
    """Of these places each that has more than MOST lines: its name, first file and size."""
    files = {place: [] for place in places}
    for name in repository.files():
        if repository.is_cxx(name) and (place := place_of(name)) in files:
            files[place].append(name)
    sizes = {place: sum(repository.text(name).count("\n") for name in names) for place, names in files.items()}
    return [(place, files[place][0], size) for place, size in sorted(sizes.items()) if size > MOST]


def _file(repository, order, name):
    room = order.room_of(posixpath.dirname(name).removeprefix("src/"))
    if room is None:
        return []  # told once, of the page
    findings = []
    for number, line in enumerate(repository.text(name).split("\n"), 1):
        if not (match := INCLUDE.match(line)):
            continue
        other = _room_of_include(order, name, match[1])
        if other not in (None, room) and other not in order.below(room):
            findings.append(Finding(name, number, f'{room} includes "{match[1]}", and {other} is not below {room} in '
                                                  f"{PAGE}: move what both need into a room below both"))
    return findings


def _room_of_include(order, name, path):
    """None: it is in no room, but the public header of include/, or generated into the own folder."""
    if path.startswith("."):
        path = posixpath.normpath(posixpath.join(posixpath.dirname(name).removeprefix("src/"), path))
    return order.room_of(posixpath.dirname(path))
