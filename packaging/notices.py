# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Prints the notices that the licences of what is compiled into the files in FOLDER ask for.

    python packaging/notices.py FOLDER THIRD_PARTY
"""

import sys

import sbom


def main():
    folder, third_party = sys.argv[1:]
    for entry in sbom.bundled_in(sbom.machine_code(sbom.files_below(folder))):
        print(f"{'=' * 100}\n{entry.name} {sbom.version_of(entry, third_party)} ({entry.licence})\n{'=' * 100}\n")
        print(sbom.copyright_of(entry, third_party).decode())


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main()
