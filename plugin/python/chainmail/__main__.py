# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Where C++ programs find this package: cmake -Dchainmail_DIR="$(python -m chainmail --cmake-dir)"."""

import argparse
import os
import sys

from chainmail import __version__, _library


def main():
    parser = argparse.ArgumentParser(prog="python -m chainmail", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--cmake-dir", action="store_true", help="the folder of chainmailConfig.cmake")
    what.add_argument("--include-dir", action="store_true", help="the folder of chainmail/chainmail.h")
    what.add_argument("--version", action="version", version=__version__)
    folder = os.path.join(_library.HERE, "cmake" if parser.parse_args().cmake_dir else "include")
    if not os.path.isdir(folder):
        sys.exit(f"python -m chainmail: there is no {folder}: this package was made from a build tree, "
                 "whose CMake package and headers `cmake --install` puts into a prefix")
    print(folder)


if __name__ == "__main__":
    main()
