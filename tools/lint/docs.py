#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Checks the links of all pages and the paths that they name, that every command in docs/ is run by a
test or says why not, and that the messages that docs/troubleshooting.md quotes are in the code.
usage: docs.py [root] [--print]

Commands are the fenced blocks marked sh, bash or console. Each needs, on the line before it, one of
these, unless a test of WHOLE_PAGES runs all commands of the page or the page is a record (RECORDS):

    <!-- run by TEST -->       TEST is a file that contains the block's commands, or the page's path
    <!-- not run: REASON -->

Every other block says what it is, such as text, cpp or python. --print lists all commands.
README.md has a check of its own, readme.py.
"""

import os
import re
import sys

import tree

# Page -> the test that reads its commands from it.
WHOLE_PAGES = {
    "docs/tutorial.md": "tests/docs/tutorial_test.py",
    "docs/launcher.md": "tests/launcher/jobs/docs_commands_test.py",
    "docs/cluster/mpi.md": "tests/launcher/jobs/docs_commands_test.py",
    "docs/cluster/security.md": "tests/launcher/jobs/docs_commands_test.py",
    "docs/cluster/schedulers.md": "tests/launcher/schedulers/recipes_test.py",
}
# What was measured, with its commands; nobody types these to use Chainmail.
RECORDS = "docs/results/"
# What these name may be gone, or yet to come.
HISTORY = ("docs/results/", "docs/decisions/", "CHANGELOG.md")
COMMANDS = ("sh", "bash", "console")
OTHERS = ("cmake", "cpp", "diff", "json", "mermaid", "python", "text")

MESSAGES = "docs/troubleshooting.md"
PROGRAMS = (".h", ".cc", ".cu", ".py", ".sh", ".cmake", ".in")

MESSAGE = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)
FENCE = re.compile(r"^ *```(.*)$")
MARK = re.compile(r"<!-- (run by|not run:) (.*?) -->$")
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(r"`((?:base|ops|plugin|launcher|tests|tools|docs|examples|cmake|\.ci)/[\w./+-]*)`")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


class Block:
    def __init__(self, line, kind, mark):
        self.line, self.kind, self.mark, self.lines = line, kind, mark, []

    def commands(self):
        """Comments and continued lines put together; of a console block the lines after '$ '."""
        text = "\n".join(self.lines).replace("\\\n", " ")
        for line in text.splitlines():
            if self.kind == "console":
                if not line.startswith("$ "):
                    continue
                line = line[2:]
            line = re.split(r"(?:^|\s)#", line)[0].strip()
            if line:
                yield re.sub(r"\s+", " ", line)


def blocks(text):
    found, block, before = [], None, ""
    for number, line in enumerate(text.split("\n"), 1):
        fence = FENCE.match(line)
        if fence and block is None:
            block = Block(number, fence.group(1).strip(), MARK.search(before))
        elif fence:
            found.append(block)
            block = None
        elif block is not None:
            block.lines.append(line)
        before = line
    return found


def anchors(text):
    """What the headings of a page are called in links, as GitHub makes it."""
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
            for heading in HEADING.findall(text)}


def pages(root):
    return [path for path in tree.files(root) if path.endswith(".md")]


def check_links(root, page, text):
    for target in LINK.findall(CODE.sub("", text)):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not os.path.exists(os.path.join(root, path)):
            yield f"{page}: links to {target}, which is not there"
        elif anchor and path.endswith(".md") and anchor not in anchors(tree.read(root, path)):
            yield f"{page}: links to {target}, but {path} has no such heading"


def check_paths(root, page, text):
    """Files and folders of the repository; those with a word in capitals stand for any."""
    for path in PATH.findall(text):
        if not re.search("[A-Z]{3,}", path) and not os.path.exists(os.path.join(root, path)):
            yield f"{page}: names {path}, which is not there"


def problem_of(root, page, block):
    kind = block.kind.split(" ")[0]
    if kind not in COMMANDS:
        return "" if kind in OTHERS else (
            f"a block marked '{block.kind}': say {', '.join(COMMANDS + OTHERS[:-1])} or {OTHERS[-1]}")
    if page in WHOLE_PAGES and block.mark is None:
        return ""
    if block.mark is None:
        return "no test is known to run this: put <!-- run by TEST --> or <!-- not run: REASON --> before it"
    how, what = block.mark.groups()
    if how == "not run:":
        return ""
    if not os.path.exists(os.path.join(root, what)):
        return f"run by {what}, which is not there"
    test = re.sub(r"\s+", " ", tree.read(root, what).replace("\\\n", " "))
    if page in test:
        return ""
    missing = [command for command in block.commands() if command not in test]
    return f"{what} contains neither {page} nor '{missing[0]}'" if missing else ""


def check(root, whole_pages):
    problems = []
    for page in pages(root):
        text = tree.read(root, page)
        problems += check_links(root, page, text)
        if not page.startswith(HISTORY):
            problems += check_paths(root, page, text)
        if page == "CONTRIBUTING.md" or (page.startswith("docs/") and not page.startswith(RECORDS)):
            for block in blocks(text):
                problem = problem_of(root, page, block)
                if problem:
                    problems.append(f"{page}:{block.line}: {problem}")
    problems += check_messages(root)
    problems += [f"{test}: does not name {page.rpartition('/')[2]}"
                 for page, test in whole_pages.items()
                 if page.rpartition("/")[2] not in tree.read(root, test)]
    return problems


def check_messages(root):
    """The first column of the page's tables; "..." stands for what the program puts in."""
    if not os.path.exists(os.path.join(root, MESSAGES)):
        return
    code = "\n".join(tree.read(root, path) for path in tree.files(root)
                     if path.endswith(PROGRAMS) and not path.startswith(("tests/", "tools/lint/")))
    # Literals that follow each other are one.
    code = re.sub(r'"\s*\n\s*f?"', "", code)
    for message in MESSAGE.findall(tree.read(root, MESSAGES)):
        for part in message.split("..."):
            if part.strip() and part.strip() not in code:
                yield f"{MESSAGES}: no program says '{part.strip()}'"


def show(root):
    for page in pages(root):
        for block in blocks(tree.read(root, page)):
            if block.kind.split(" ")[0] in COMMANDS:
                how = f"all, {WHOLE_PAGES[page]}" if page in WHOLE_PAGES else (
                    "readme.py" if page == "README.md" else block.mark and block.mark.group(0))
                for command in block.commands():
                    print(f"{page}:{block.line}: {command}  [{how}]")


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--print"]
    folder = arguments[0] if arguments else "."
    if "--print" in sys.argv:
        sys.exit(show(folder))
    sys.exit(tree.report(check(folder, WHOLE_PAGES)))
