#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Compiles the examples of a page of docs/ against the installed package, and runs them.

    examples_test.py CMAKE BUILD_DIR LIBTORCH PAGE RANKS

Every block marked cpp becomes a file, named by the heading that it is under: the second one under
"## Parts of a model" becomes parts_of_a_model_2.inc. PAGE.cc beside this file includes each of them where
it can stand.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

import page
import scratch

HERE = pathlib.Path(__file__).resolve().parent

CMAKE_LISTS = """\
cmake_minimum_required(VERSION 3.25)
project(examples LANGUAGES CXX)
find_package(chainmail REQUIRED)
add_executable(examples {source})
target_link_libraries(examples PRIVATE chainmail::chainmail)
"""

COMMANDS = """\
cmake -G Ninja -S . -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$HOME/chainmail"
cmake --build build
"$HOME/chainmail/bin/launcher" -H localhost:{ranks} -n {ranks} build/examples
"""


def write_examples(path, folder):
    """The names of the files. Errors of the compiler name the page's lines."""
    names = set()
    for example in page.examples(path):
        (folder / example.name).write_text(f'#line {example.line} "{path}"\n{example.text}')
        names.add(example.name)
    return names


def main():
    cmake, build, libtorch, name, ranks = sys.argv[1:]
    source = HERE / f"{name}.cc"
    with tempfile.TemporaryDirectory(prefix="chainmail-examples.") as home:
        home = pathlib.Path(home)
        folder = home / "examples"
        folder.mkdir()
        written = write_examples(HERE.parents[1] / "docs" / f"{name}.md", folder)
        included = set(re.findall(r'^ *#include "(\w+\.inc)"$', source.read_text(), re.MULTILINE))
        if written != included:
            raise page.PageError(f"{source.name} includes {sorted(included - written)}, which are not in the page, "
                                 f"and lacks {sorted(written - included)}")
        (folder / source.name).write_text(source.read_text())
        (folder / "CMakeLists.txt").write_text(CMAKE_LISTS.format(source=source.name))
        scratch.install(cmake, build, home)
        page.run_all(COMMANDS.format(ranks=ranks), folder, scratch.environment(home, libtorch))


if __name__ == "__main__":
    main()
