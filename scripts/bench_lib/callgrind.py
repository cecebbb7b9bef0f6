"""What valgrind --tool=callgrind writes."""

import re

ROOMS = ("verbs", "rnic", "transport", "wire", "port", "libc", "other")


def functions_of(path):
    """{(object, function): [instructions of its own, calls]} of a profile, as its manual describes the format."""
    functions, names = {}, {}
    here, there = {"ob": "", "fn": ""}, {}

    def name(kind, text):
        number, _, given = text.partition(") ")
        key = (kind, number.rstrip(")"))
        if given:
            names[key] = given
        return names[key] if text.startswith("(") else text

    with open(path, errors="replace") as lines:
        inclusive = False  # the line after calls=: what the call cost, which the callee's own lines tell as well
        for line in lines:
            line = line.rstrip("\n")
            if assignment := re.match(r"(c?)(ob|fn)=(.*)", line):
                called, kind, text = assignment.groups()
                (there if called else here)[kind] = name(kind, text)
            elif line.startswith("calls="):
                callee = (there.get("ob", here["ob"]), there["fn"])
                functions.setdefault(callee, [0, 0])[1] += int(line[6:].split()[0])
                there, inclusive = {}, True
            elif cost := re.match(r"(?:\*|[+-]?\d+) (\d+)$", line):
                if not inclusive:
                    functions.setdefault((here["ob"], here["fn"]), [0, 0])[0] += int(cost[1])
                inclusive = False
    return functions


def room_of(binary, function):
    room = re.search(r"\bferry::(\w+)::", function)
    if room and room[1] in ROOMS:
        return room[1]
    return "libc" if re.search(r"libc\.so|ld-linux", binary) else "other"
