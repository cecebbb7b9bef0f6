"""The tree that has passed: its id, in the file `passed` of the git folder."""

import pathlib
import subprocess


def git(repository, *words):
    done = subprocess.run(["git", *words], cwd=repository, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def clean_tree(repository):
    """The id of the tree that is checked out; None if something differs from it, or there is no git."""
    if git(repository, "status", "--porcelain") != "":
        return None
    return git(repository, "rev-parse", "HEAD^{tree}")


def passed_file(repository):
    return pathlib.Path(repository, git(repository, "rev-parse", "--git-dir"), "passed")


def write_passed(repository, tree):
    file = passed_file(repository)
    file.write_text(tree + "\n")
    return file


def has_passed(repository):
    """Whether the checked out tree is clean and the one that passed last."""
    tree = clean_tree(repository)
    return tree is not None and passed_file(repository).exists() and passed_file(repository).read_text().strip() == tree
