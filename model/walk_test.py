#!/usr/bin/env python3
"""walk_test.py MOVE_WALK: compares the moves of migration.pml with those of the code.

Reads one_move() of the model and follows it from a program that does not move; MOVE_WALK (move_walk.cc) does the same
with the machines that ferryd runs. Both must make the same changes of the variables of a move.
"""

import pathlib
import re
import subprocess
import sys

VARIABLES = ("moving", "source_live", "destination", "source_record", "destination_record")
START = ("0", "1", "IS_ABSENT", "NO_RECORD", "NO_RECORD")


def body_of(model, name):
    """The text between the braces of an inline of the model."""
    begin = model.index("{", model.index(f"inline {name}(")) + 1
    depth = 1
    for end in range(begin, len(model)):
        depth += {"{": 1, "}": -1}.get(model[end], 0)
        if depth == 0:
            return model[begin:end]
    raise ValueError(f"{name} has no end")


def without_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def macros_of(model):
    """The macros without arguments; of those that a guard's absence changes, the one with the guard."""
    model = re.sub(r"#ifdef NO_\w+\n.*?#else\n(.*?)#endif", r"\1", model, flags=re.S)
    model = model.replace("\\\n", " ")
    return dict(re.findall(r"^#define (\w+) (.+)$", model, flags=re.M))


def options_of(model):
    """(guard, assignments) of each way in which a move goes on."""
    macros = macros_of(model)

    def expression(guard):  # the same in Python
        for name in ("FROZEN", "MAY_RESUME"):
            guard = guard.replace(name, macros[name])
        guard = guard.replace("MOVES_FAIL", "True").replace("&&", " and ").replace("||", " or ")
        guard = re.sub(r"program\[p\]\.(\w+) == (\w+)", r"(\1 == '\2')", guard)
        guard = re.sub(r"!program\[p\]\.(\w+)", r"(\1 == '0')", guard)
        guard = re.sub(r"program\[p\]\.(\w+) != (\w+)", r"(\1 != '\2')", guard)
        guard = re.sub(r"program\[p\]\.(\w+)", r"(\1 == '1')", guard)
        return " ".join(guard.split())

    for option in body_of(model, "one_move").split(":: d_step {")[1:]:
        guard, effect = option.split("->", 1)
        for called in ("roll_back", "end_of_move"):
            if f"{called}()" in effect:
                effect += body_of(model, called)
        assignments = re.findall(r"program\[p\]\.(\w+) = (\w+)", effect)
        yield expression(guard), [(name, value) for name, value in assignments if name in VARIABLES]


def changes_of_model(model):
    options = list(options_of(model))
    changes, seen, left = set(), set(), [START]
    while left:
        state = left.pop()
        if state in seen:
            continue
        seen.add(state)
        for guard, assignments in options:
            values = dict(zip(VARIABLES, state))
            if not eval(guard, {}, values):  # pylint: disable=eval-used
                continue
            values.update(assignments)
            after = tuple(values[name] for name in VARIABLES)
            if after != state:
                changes.add(f"{' '.join(state)} > {' '.join(after)}")
                left.append(after)
    return changes


def main():
    model = without_comments((pathlib.Path(__file__).parent / "migration.pml").read_text(encoding="utf-8"))
    in_model = changes_of_model(model)
    walked = set(subprocess.run([sys.argv[1]], check=True, capture_output=True, text=True).stdout.splitlines())
    for change in sorted(walked - in_model):
        print(f"the code does, the model does not: {change}")
    for change in sorted(in_model - walked):
        print(f"the model does, the code does not: {change}")
    if walked != in_model or not walked:
        return 1
    print(f"{len(walked)} changes, in the model and in the code")
    return 0


if __name__ == "__main__":
    sys.exit(main())
