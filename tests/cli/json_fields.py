#!/usr/bin/python3
"""Compares what a command prints as JSON with a table of docs/json.md:

    json_fields.py docs/json.md 'ferry ps --json' <OUTPUT

Every field of the output is in the table with its type, and every field of the table is in the output.
"""

import json
import re
import sys

TYPES = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}


def documented(page, heading):
    section = re.search(rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", page, re.M | re.S)
    rows = re.findall(r"^\| `([^`]+)` \| (\w+) \|", section[1], re.M) if section else []
    if not rows:
        sys.exit(f"no table under '{heading}'")
    return dict(rows)


def fields(value, path=""):
    if isinstance(value, dict):
        for key, each in value.items():
            name = f"{path}.{key}" if path else key
            yield name, each
            yield from fields(each, name)
    elif isinstance(value, list):
        for each in value:
            yield from fields(each, path + "[]")


def main():
    table = documented(open(sys.argv[1], encoding="utf-8").read(), sys.argv[2])
    found, findings = set(), []
    for name, value in fields(json.load(sys.stdin)):
        found.add(name)
        if name not in table:
            findings.append(f"{name} is printed, and not documented")
        elif not isinstance(value, TYPES[table[name]]) or (isinstance(value, bool) and table[name] != "boolean"):
            findings.append(f"{name} is {value!r}, and documented as {table[name]}")
    findings += [f"{name} is documented, and not printed" for name in table if name not in found]
    for finding in sorted(set(findings)):
        print(finding)
    sys.exit(1 if findings else 0)


main()
