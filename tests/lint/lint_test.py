#!/usr/bin/python3
"""Each check of scripts/lint finds what it should, and passes what it should, in a small repository of its own."""

import os
import pathlib
import subprocess
import tempfile
import unittest

LINT = pathlib.Path(__file__).resolve().parents[2] / "scripts/lint"
ORDER = """# Architecture

    before → the_rooms

## Rooms

    app/      what it is: app → words are not an order
    app → host/move → host/proc → wire
    tool → host/proc

## Next

    after → the_rooms
"""
SCRIPT = "#!/bin/bash\n"


class Lint(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.environment = os.environ | {"HOME": folder.name, "GIT_CONFIG_NOSYSTEM": "1"}
        # Of a git that runs this test, by a hook.
        for name in [name for name in self.environment if name.startswith("GIT_") and name != "GIT_CONFIG_NOSYSTEM"]:
            del self.environment[name]
        self.git("init", "-q")
        self.write(".clang-format", "DisableFormat: true\nSortIncludes: false\n")

    def git(self, *arguments):
        subprocess.run(["git", *arguments], cwd=self.folder, env=self.environment, check=True)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def rooms(self):
        """The rooms of ORDER, each with a file."""
        self.write("docs/architecture.md", ORDER)
        for room in ("app", "host/move", "host/proc", "wire", "tool"):
            self.write(f"src/{room}/{room.replace('/', '_')}.h", "")

    def lint(self, *arguments, status=None):
        result = subprocess.run([LINT, "--repository", self.folder, *arguments], cwd=self.folder, capture_output=True,
                                text=True, env=self.environment, check=False)
        lines = result.stdout.splitlines()
        if status == 2:
            self.assertEqual((result.returncode, lines), (2, []), result.stdout + result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
            return result.stderr
        self.assertEqual(result.stderr, "")
        self.assertRegex(lines[-1], rf"^lint: {len(lines) - 1} findings? in \d+ files \(rooms \d+, ")
        self.assertEqual(result.returncode, 1 if len(lines) > 1 else 0)
        return lines[:-1]

    def finds(self, *expected):
        """One finding each, in order; expected: how it begins, and what else is in it."""
        found = self.lint()
        self.assertEqual(len(found), len(expected), found)
        for line, (begin, *parts) in zip(found, expected):
            self.assertTrue(line.startswith(begin), line)
            for part in parts:
                self.assertIn(part, line)

    # rooms

    def test_rooms_below_are_included(self):
        self.rooms()
        self.write("src/app/a.cc", '#include "app/app.h"\n#include "host/move/host_move.h"\n#include "wire/wire.h"\n')
        self.write("src/tool/t.cc", '#include "host/proc/host_proc.h"\n#include "wire/wire.h"\n')
        self.write("src/host/move/m.cc", '#include <app/app.h>\n#include "host/proc/host_proc.h"\n'
                                         '#include "generated.pb.h"\n#include "public/api.h"\n')
        self.write("src/wire/deep/er/d.cc", '#include "../../wire.h"\n#include "wire/wire.h"\n')
        self.assertEqual(self.lint(), [])

    def test_rooms_above_and_beside_are_not_included(self):
        self.rooms()
        self.write("src/wire/w.cc", '#include "wire/wire.h"\n  #  include "app/app.h"\n')
        self.write("src/tool/t.h", '#include "host/move/host_move.h"\n')
        self.write("src/app/a.h", '#include "tool/tool.h"\n')
        self.write("src/wire/deep/d.h", '#include "../../tool/tool.h"\n')
        self.finds(("src/app/a.h:1: ", "app", "tool is not below app"),
                   ("src/tool/t.h:1: ", "host/move is not below tool"),
                   ("src/wire/deep/d.h:1: ", "tool is not below wire"),
                   ("src/wire/w.cc:2: ", "app is not below wire", "docs/architecture.md"))

    def test_the_longest_room_counts(self):
        self.rooms()
        self.write("src/host/proc/deep/p.cc", '#include "host/proc/host_proc.h"\n#include "host/move/host_move.h"\n')
        self.finds(("src/host/proc/deep/p.cc:2: ", "host/proc includes", "host/move is not below host/proc"))

    def test_the_page_has_the_rooms_that_are_there(self):
        self.rooms()
        self.write("src/host/other/o.h", '#include "app/app.h"\n')
        self.write("src/new/n.h", "")
        (self.folder / "src/tool/tool.h").unlink()
        self.finds(("docs/architecture.md:5: ", "src/host/other"), ("docs/architecture.md:5: ", "src/new"),
                   ("docs/architecture.md:9: ", "tool"))

    def test_an_order_that_goes_in_a_circle(self):
        self.rooms()
        self.write("docs/architecture.md",
                   "## Rooms\n\n    app → host/move → host/proc → wire\n    wire → tool → wire\n")
        self.finds(("docs/architecture.md:3: ", "the room wire is below itself"),
                   ("docs/architecture.md:4: ", "the room tool is below itself"))

    def test_a_folder_that_is_too_large(self):
        self.rooms()
        self.write("docs/architecture.md", ORDER.replace("→ wire", "→ wire → wire/deep"))
        self.write("src/wire/a.h", "\n" * 2000)
        self.write("src/wire/b.cc", "\n" * 1000)
        self.write("src/wire/deep/c.h", "\n" * 2999)
        self.assertEqual(self.lint(), [])
        self.write("src/wire/b.cc", "\n" * 1001)
        self.finds(("src/wire/a.h:1: ", "src/wire has 3001 lines"))
        self.assertEqual(self.lint("src/tool"), [])

    def test_a_large_room_has_rooms_inside(self):
        self.rooms()
        self.write("src/wire/a.h", "\n" * 2000)
        self.write("src/wire/deep/b.h", "\n" * 1000)
        self.assertEqual(self.lint(), [])
        self.write("src/wire/deep/b.h", "\n" * 1001)
        self.finds(("src/wire/a.h:1: ", "the room wire has 3001 lines"))
        self.assertEqual(len(self.lint("src/wire/deep")), 1)
        self.assertEqual(self.lint("src/tool"), [])
        self.write("docs/architecture.md", ORDER.replace("→ wire", "→ wire → wire/inner"))
        self.write("src/wire/inner/c.h", "")
        self.assertEqual(self.lint(), [])

    def test_a_page_that_is_missing(self):
        self.write("src/app/a.h", "")
        self.finds(("docs/architecture.md:1: ",))

    # lines

    def test_lines_of_120_characters(self):
        self.write("a.txt", "x" * 120 + "\n" + "ü" * 120 + "\r\n" + "→" * 120)
        self.assertEqual(self.lint(), [])

    def test_lines_of_more(self):
        self.write("a.txt", "short\n" + "x" * 121 + "\n" + "ü" * 121)
        self.write("b.txt", b"\xff" * 121)
        self.finds(("a.txt:2: 121 characters",), ("a.txt:3: 121 characters",), ("b.txt:1: 121 characters",))

    def test_urls_stand_alone(self):
        url = "https://example.org/" + "x" * 120
        self.write("a.md", f"{url}\n# {url}\n- <{url}>\n")
        self.assertEqual(self.lint(), [])
        self.write("a.md", f"See {url}\n")
        self.finds(("a.md:1: ",))

    def test_data_is_not_read_by_lines(self):
        self.write("tests/fuzz/corpus/a/one", "x" * 200)
        self.write("tests/golden/image.hex", "0" * 200)
        self.write("picture", b"\0" + b"x" * 200)
        self.assertEqual(self.lint(), [])

    # links

    def test_links_that_lead_there(self):
        self.write("README.md", "# One\n\n[a](docs/a.md) [b](docs/a.md#two-a_b--c) [c](#one) [d](docs)\n"
                                "[e](https://x.org/#y) `[code](nowhere.md)`\n\n```text\n[code](nowhere.md)\n```\n")
        self.write("docs/a.md", "## Two: `a_b` & [c](../README.md)\n\n## Same\n\n## Same\n[a](#same) [b](#same-1)\n")
        self.assertEqual(self.lint(), [])

    def test_links_that_lead_nowhere(self):
        self.write("README.md", "[a](docs/b.md)\n\n```sh\n# two\n```\n[b](docs/a.md#three) [c](#two)\n")
        self.write("docs/a.md", "# Two\n\n[up](README.md)\n")
        self.finds(("README.md:1: ", "docs/b.md"), ("README.md:6: ", "#two", "README.md has no such heading"),
                   ("README.md:6: ", "docs/a.md#three", "no such heading"), ("docs/a.md:3: ", "docs/README.md"))

    # glossary

    def test_terms_that_are_used(self):
        self.write("docs/glossary.md", "# Terms\n\n* **Paused**: waits.\n* **stand-in**: answers.\n"
                                       "* **wire QPN**: a number.\n")
        self.write("docs/a.md", "A paused QP. A wire\nQPN is another.\n")
        self.rooms()
        self.write("src/wire/w.cc", "// The stand-ins.\n")
        self.assertEqual(self.lint(), [])

    def test_terms_that_are_not_used_or_not_in_order(self):
        self.write("docs/glossary.md", "* **wire**: one.\n* **Place**: two; wire.\n* **place**: three.\n"
                                       "* **slot**: four.\n")
        self.write("docs/a.md", "A place on the wire. Timeslots.\n")
        self.write("tests/a.cc", "// slot\n")
        self.finds(("docs/glossary.md:2: ", "'Place' comes before 'wire'"), ("docs/glossary.md:3: ", "twice"),
                   ("docs/glossary.md:4: ", "uses 'slot'"))

    # clang-format

    def test_clang_format(self):
        self.write(".clang-format", "BasedOnStyle: Google\n")
        self.write("good.cc", "int main() { return 0; }\n")
        self.write("bad.h", "int  x;\n\n\n\n\nint y ;\n")
        self.finds(("bad.h:1: ", "clang-format-14 -i bad.h"), ("bad.h:6: ",))

    # shellcheck

    def test_shell_scripts_are_known_by_their_head(self):
        wrong = "echo $1\n"
        self.write("good.sh", SCRIPT + 'echo "$1"\n')
        self.write("tool", SCRIPT + wrong)
        self.write("env", "#!/usr/bin/env bash\n" + wrong)
        self.write("plain", "#!/bin/sh\n" + wrong)
        self.write("lib.sh", "# Sourced.\n# shellcheck shell=bash\n" + wrong)
        self.write("other.py", "#!/usr/bin/python3\n" + wrong)
        self.write("notes", wrong)
        self.finds(("env:2: shellcheck: ", "SC2086"), ("lib.sh:3: ",), ("plain:2: ",), ("tool:2: ",))

    def test_what_a_script_sources_counts(self):
        self.write("lib.sh", "# shellcheck shell=bash\nexport words=one\n")
        self.write("tool", SCRIPT + '# shellcheck source=lib.sh\nsource "$(dirname "$0")/lib.sh"\necho "$words"\n')
        self.assertEqual(self.lint(), [])
        self.assertEqual(len(list((self.folder / ".git/lint/shellcheck").iterdir())), 2)
        self.write("lib.sh", "# shellcheck shell=bash\nexport other=one\n")
        self.finds(("tool:4: shellcheck: words", "SC2154"))

    def test_what_has_passed_is_not_looked_at_again(self):
        self.write("tool", SCRIPT + 'echo "$1"\n')
        calls = self.folder / ".git/calls"
        self.write(".git/bin/shellcheck", f'#!/bin/sh\necho "$*" >>{calls}\nexec {self.real("shellcheck")} "$@"\n')
        (self.folder / ".git/bin/shellcheck").chmod(0o755)
        self.environment["PATH"] = f"{self.folder}/.git/bin:{os.environ['PATH']}"
        for expected in (["--version", "tool"], ["--version"]):
            self.assertEqual(self.lint(), [])
            self.assertEqual([line.split()[-1] for line in calls.read_text().splitlines()], expected)
            calls.unlink()
        self.write("tool", SCRIPT + "echo $1\n")
        for _ in range(2):
            self.finds(("tool:2: ",))

    def test_nothing_can_be_remembered(self):
        self.write("tool", SCRIPT + 'echo "$1"\n')
        self.write(".git/lint", "a file in the way")
        self.assertEqual(self.lint(), [])

    # all

    def test_what_git_knows(self):
        self.write(".gitignore", "/build/\n")
        self.write("build/a.txt", "x" * 121)
        self.write("new.txt", "x" * 121)
        self.write("gone.txt", "x" * 121)
        self.write("kept.txt", "x" * 121)
        self.git("add", "gone.txt", "kept.txt")
        (self.folder / "gone.txt").unlink()
        (self.folder / "link.txt").symlink_to("kept.txt")
        self.finds(("kept.txt:1: ",), ("new.txt:1: ",))

    def test_some_files_only(self):
        self.rooms()
        self.write("a.txt", "x" * 121)
        self.write("src/wire/w.cc", '#include "app/app.h"\n')
        self.write("src/new/n.h", "x" * 121)
        self.assertEqual(len(self.lint("a.txt")), 1)
        self.assertEqual(len(self.lint("src/wire")), 1)
        self.assertEqual(len(self.lint("docs")), 1)
        self.assertIn("no-such-file", self.lint("no-such-file", status=2))

    def test_missing_tools(self):
        self.write("bin/git", SCRIPT + f'exec {self.real("git")} "$@"\n')
        (self.folder / "bin/git").chmod(0o755)
        (self.folder / "bin/python3").symlink_to("/usr/bin/python3")
        self.environment["PATH"] = f"{self.folder}/bin"
        self.assertEqual(self.lint("--", ".clang-format"), [])
        self.assertRegex(self.lint(status=2), "^lint: shellcheck is missing: run scripts/setup$")
        self.write("a.h", "")
        self.assertRegex(self.lint("a.h", status=2), "^lint: clang-format-14 is missing: run scripts/setup$")
        self.environment["PATH"] = "/nowhere"
        self.assertRegex(self.lint(status=2), "^lint: git is missing: run scripts/setup$")

    def test_a_repository_of_another_user(self):
        self.environment["GIT_TEST_ASSUME_DIFFERENT_OWNER"] = "1"
        self.assertIn("git config --global --add safe.directory", self.lint(status=2))

    def real(self, tool):
        return subprocess.run(["which", tool], capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    unittest.main()
