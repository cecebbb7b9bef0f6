#!/usr/bin/python3
"""Compares what a command prints as JSON with a table of docs/json.md:

    json_fields.py docs/json.md 'ferry ps --json' <OUTPUT

Every field of the output is in the table with its type, and every field of the table is in the output. Of several
objects, one behind the other, each is compared.
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


def objects(text):
    decoder, at = json.JSONDecoder(), 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        value, at = decoder.raw_decode(text, at)
        yield value


def differences(table, value):
    found = set()
    for name, each in fields(value):
        found.add(name)
        if name not in table:
            yield f"{name} is printed, and not documented"
        elif not isinstance(each, TYPES[table[name]]) or (isinstance(each, bool) and table[name] != "boolean"):
            yield f"{name} is {each!r}, and documented as {table[name]}"
    yield from (f"{name} is documented, and not printed" for name in table if name not in found)


def main():
    table = documented(open(sys.argv[1], encoding="utf-8").read(), sys.argv[2])
    printed = list(objects(sys.stdin.read()))
    findings = [] if printed else ["nothing is printed"]
    for value in printed:
        findings += differences(table, value)
    for finding in sorted(set(findings)):
        print(finding)
    sys.exit(1 if findings else 0)


main()
