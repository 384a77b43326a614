#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Checks that every public symbol is documented and that doxygen understands each comment.
usage: doxygen.py [root]; 77 means skipped.

Doxygen's own warnings miss enumerators, macros, namespaces and destructors, so what it has found is counted in its
XML. Nothing has to be said of what is deleted, of destructors that only override, and of friends.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

import tree

SKIPPED = 77
HEADERS = re.compile(r"plugin/include/chainmail/.*\.h|base/(error|export)\.h")
COMPOUNDS = ("class", "struct", "union", "namespace", "concept")
DESCRIPTIONS = ("briefdescription", "detaileddescription", "inbodydescription")
NEEDS_NO_WORDS = re.compile(r"= *delete$|^\(\).*(override|= *default)$")


def run_doxygen(doxygen, root, folder):
    """Writes XML into folder/xml; what doxygen complains about."""
    settings = tree.read(root, "docs/maintainers/Doxyfile") + (
        f"OUTPUT_DIRECTORY = {folder}\nGENERATE_HTML = NO\nGENERATE_XML = YES\n")
    result = subprocess.run([doxygen, "-"], cwd=root, input=settings, text=True, timeout=120,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    problems = sorted(set(line for line in result.stderr.splitlines() if line.strip()))
    if result.returncode and not problems:
        problems = [f"doxygen ended with code {result.returncode}"]
    return problems


def is_documented(element):
    return any("".join(found.itertext()).strip()
               for found in map(element.find, DESCRIPTIONS) if found is not None)


def place(element):
    at = element.find("location")
    return f"{at.get('file')}:{at.get('line')}" if at is not None else "?"


def symbols(folder):
    """Of the XML in `folder`: id, (place, name, is_documented). What stands in a class and in its file
    counts once."""
    found = {}
    for path in glob.glob(os.path.join(folder, "xml", "*.xml")):
        for compound in ElementTree.parse(path).getroot().findall("compounddef"):
            name, kind = compound.findtext("compoundname"), compound.get("kind")
            if compound.get("prot") == "private":
                continue  # with all that it holds
            if kind in COMPOUNDS and name.startswith("chainmail"):
                found[compound.get("id")] = (place(compound), f"{kind} {name}", is_documented(compound))
            for member in compound.iter("memberdef"):
                found.update(symbols_of(member, kind, name))
    return found


def symbols_of(member, kind, scope):
    name, arguments = member.findtext("name"), member.findtext("argsstring") or ""
    if member.get("prot") == "private" or member.get("kind") == "friend":
        return
    is_destructor = name.startswith("~")
    if NEEDS_NO_WORDS.search(arguments) and (is_destructor or arguments.endswith("delete")):
        return
    full = name if kind == "file" else f"{scope}::{name}"
    kind = {"variable": "member", "define": "macro"}.get(member.get("kind"), member.get("kind"))
    yield member.get("id"), (place(member), f"{kind} {full}{arguments}", is_documented(member))
    for value in member.findall("enumvalue"):
        yield value.get("id"), (place(member), f"enumerator {full}::{value.findtext('name')}",
                                is_documented(value))


def missing_headers(root, folder):
    """Headers that doxygen was not told of, or could not read."""
    seen = {ElementTree.parse(path).find("compounddef/location").get("file")
            for path in glob.glob(os.path.join(folder, "xml", "*_8h.xml"))}
    return [f"{path}: doxygen has not read it (INPUT of docs/maintainers/Doxyfile)"
            for path in tree.files(root) if HEADERS.fullmatch(path) and path not in seen]


def check_in(folder, doxygen, root):
    """Problems, and how many public symbols there are; the XML stays in `folder`."""
    problems = run_doxygen(doxygen, root, folder)
    found = symbols(folder)
    problems += missing_headers(root, folder)
    problems += sorted({f"{where}: {name} is not documented"
                        for where, name, documented in found.values() if not documented})
    if not found:
        problems.append("doxygen has found no public symbol")
    return problems, len(found)


def check(doxygen, root):
    with tempfile.TemporaryDirectory() as folder:
        return check_in(folder, doxygen, root)


def main(root):
    doxygen = shutil.which("doxygen")
    if doxygen is None:
        print("skipped: doxygen is missing: install the package doxygen")
        return SKIPPED
    problems, count = check(doxygen, root)
    print(f"{count} public symbols")
    return tree.report(problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "."))
