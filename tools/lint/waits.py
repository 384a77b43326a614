#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Checks that docs/maintainers/waits.md lists every function that calls something that may block, and no other.
usage: waits.py [root] [--print]

Whoever adds a wait thus has to say what bounds it. --print shows what is found in the code.
"""

import re
import sys

import tree

PAGE = "docs/maintainers/waits.md"
FOLDERS = ("base/", "ops/", "plugin/", "launcher/")

# Calls that return only when somebody else has done something, or may. System calls that share
# their name with many a method count with "::" in front, or where a count of bytes takes the result.
_METHODS = "wait wait_for wait_until join"
_SYSTEM = ("poll ppoll epoll_wait epoll_pwait waitpid waitid wait4 flock lockf fsync fdatasync syncfs "
           "sync_file_range accept4 recvfrom recvmsg sendto sendmsg readv pwrite writev nanosleep usleep "
           "sigwait sigtimedwait getaddrinfo getnameinfo sem_wait")
_SHARED = "select connect accept recv send read pread write sleep pause"
_STORE = "clone set check add wait deleteKey compareSet append getNumKeys"
_MPI = "Init Init_thread Finalize Wait Waitall Recv Send Probe Barrier Comm_dup"


def _any(names):
    return "(?:" + "|".join(names.split()) + ")"


CALLS = re.compile("|".join([
    rf"(?:\.|->){_any(_METHODS)}\(",
    r"\bsleep_(?:for|until)\(",
    r"\b(?:join_or_let_go|poll_until)\(",
    r"\bSYS_futex\b",
    r"\bF_(?:OFD_)?SETLKW\b",
    rf"\bMPI_{_any(_MPI)}\(",
    rf"\bstore(?:\.|->){_any(_STORE)}\(",  # c10d's
    r"\bstore(?:\.|->)get\([^)]",
    r"\bbase_?->clone\(",
    rf"(?<![\w.>:])(?:::)?{_any(_SYSTEM)}\(",
    rf"(?<![\w>])::{_any(_SHARED)}\(",
    rf"\b(?:count|got|sent|written) = {_any(_SHARED)}\("]))

_COMMENT_OR_TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_TYPE = re.compile(r"(?:template\s*<.*>\s*)?(?:class|struct|union)\s+(?:\w+\s+)*?(\w+)[^;]*$")
_NO_FUNCTION = re.compile(r"\s*(?:[#})]|namespace\b|using\b|enum\b|template\b|public:|private:|"
                          r"protected:|extern\b|static_assert\b|case\b|default:|:\s)")
_FUNCTION = re.compile(r"(~?\w+|operator\(\)|operator\S+)\s*\(")
_ROW = re.compile(r"^\| `([^`]+\.(?:cc|h|cu))`: ([^|]*)\|", re.MULTILINE)


def functions_in(text):
    """Yields (function, line number) for every call. A function begins at the margin, a member that
    is defined inside its class two columns in."""
    text = _COMMENT_OR_TEXT.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    in_type, function = False, "?"
    for number, line in enumerate(text.split("\n"), 1):
        indent = len(line) - len(line.lstrip())
        if line.strip() and indent == 0 and not line.startswith("}"):
            in_type = bool(_TYPE.match(line)) and "(" not in line.split("{")[0]
        starts = indent == 0 or (in_type and indent == 2)
        if starts and line.strip() and not _NO_FUNCTION.match(line) and not line.endswith(";\n"):
            found = _FUNCTION.search(line)
            declares = line.rstrip().endswith(";") and "{" not in line
            if found and not declares:
                function = found.group(1)
        for match in CALLS.finditer(line):
            is_definition = starts and match.start() <= line.find("(") and not (
                match.group().startswith((".", "-")))
            if not is_definition:
                yield function, number


def listed(page):
    rows = set()
    for path, names in _ROW.findall(page):
        rows.update((path, name) for name in re.findall(r"`([^`]+)`", names))
    return rows


def check(root):
    problems = []
    wanted = listed(tree.read(root, PAGE))
    found = set()
    for path in tree.files(root):
        if not path.startswith(FOLDERS) or not path.endswith(tree.CODE):
            continue
        for function, number in functions_in(tree.read(root, path)):
            if (path, function) not in wanted | found:
                problems.append(f"{path}:{number}: {function}() may block: say in {PAGE} what it "
                                "waits for and what bounds that")
            found.add((path, function))
    for path, function in sorted(wanted - found):
        problems.append(f"{PAGE}: nothing in {path} blocks in {function}()")
    return problems


def show(root):
    for path in tree.files(root):
        if path.startswith(FOLDERS) and path.endswith(tree.CODE):
            names = dict.fromkeys(name for name, _ in functions_in(tree.read(root, path)))
            if names:
                print(f"| `{path}`: " + ", ".join(f"`{name}`" for name in names) + " | | |")


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--print"]
    folder = arguments[0] if arguments else "."
    if "--print" in sys.argv:
        sys.exit(show(folder))
    sys.exit(tree.report(check(folder)))
