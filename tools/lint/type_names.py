#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Checks that no two files define a type of one name in one namespace. usage: type_names.py [root]

The linker keeps one definition of each inline function, constructors and destructors included, so
two such types in one program corrupt each other without a word from the compiler. A file below
tests/ is judged together with the products only: two test programs never meet.
"""

import re
import sys

import tree

# A comment, a literal, a preprocessor line (with its continuations) or one of the braces we count.
TOKEN = re.compile(r"""//[^\n]*|/\*.*?\*/|R"(?P<raw>[^(\s]*)\(.*?\)(?P=raw)"|"(?:\\.|[^"\\\n])*"
                       |(?<![0-9A-Za-z])'(?:\\.|[^'\\\n])+'
                       |^[ \t]*\#(?:[^\n\\]|\\\n|\\.)*|[{};]""", re.DOTALL | re.MULTILINE | re.VERBOSE)
NAMESPACE = re.compile(r"\s*(?:inline\s+)?namespace\b\s*((?:\w+\s*(?:::\s*)?)*)")
TYPE = re.compile(r"(?:^|\s|>)(?:class|struct|union|enum(?:\s+(?:class|struct))?)\s+"
                  r"(?:(?:alignas\s*\([^)]*\)|\[\[[^\]]*\]\]|[A-Z][A-Z0-9]*_[A-Z0-9_]+)\s*)*"
                  r"(\w+)\s*(?:final\s*)?(?::(?!:)[^(=]*)?$")
ANONYMOUS = ""


def definitions(text):
    """(namespace::name, line) of every type defined at namespace scope, anonymous ones left out."""
    found = []
    scopes = []  # a namespace's name, or None for any other brace
    begin = 0  # of the text that says what the next brace opens
    seen = []
    for token in TOKEN.finditer(text):
        kind = token.group()
        if kind not in "{};":
            seen.append(text[begin:token.start()])
            begin = token.end()
            continue
        head = "".join([*seen, text[begin:token.start()]])
        seen, begin = [], token.end()
        if kind == "}":
            if scopes:
                scopes.pop()
        elif kind == "{":
            namespace = NAMESPACE.fullmatch(head)
            if namespace:
                scopes.append(re.sub(r"\s", "", namespace.group(1)))
                continue
            name = TYPE.search(head)
            if name and None not in scopes and ANONYMOUS not in scopes:
                line = text.count("\n", 0, token.start()) + 1
                found.append(("::".join([*scopes, name.group(1)]), line))
            scopes.append(None)
    return found


def check(root):
    problems = []
    product = {}
    paths = [path for path in tree.files(root) if path.endswith(tree.CODE)]
    for path in sorted(paths, key=lambda path: path.startswith(("tests/", "examples/"))):
        own = {}
        for name, line in definitions(tree.read(root, path)):
            first = product.get(name) or own.get(name)
            if first and not first.startswith(f"{path}:"):
                problems.append(f"{path}:{line}: {name} is also defined in {first}: rename one, or "
                                f"put a type that one file uses into an anonymous namespace")
            else:
                own[name] = f"{path}:{line}"
        if not path.startswith(("tests/", "examples/")):
            product.update(own)
    return problems


if __name__ == "__main__":
    sys.exit(tree.report(check(sys.argv[1] if len(sys.argv) > 1 else ".")))
