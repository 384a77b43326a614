# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""What a wheel of tools/package.sh has to hold.

usage: wheel_contents.py WHEEL TORCH...     (in the repository's root; run by wheel.sh)
"""

import pathlib
import re
import sys
import zipfile

sys.path.insert(0, str(pathlib.Path("packaging").resolve()))
import sbom  # noqa: E402
import tag  # noqa: E402


def must(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def check_libraries(names, torches):
    for torch in torches:
        folder = f"chainmail/torch{'.'.join(torch.split('.')[:2])}/"
        for pattern in (r"libchainmail\.so\.(0\.)?\d+", r"libchainmail_mpi\.so", r"libchainmail_cuda\.so",
                        r"cmake/chainmail/chainmailConfig\.cmake", r"cmake/chainmail/chainmailTargets\.cmake"):
            must(any(re.fullmatch(re.escape(folder) + pattern, name) for name in names), f"no {folder}{pattern}")


def check_programs(wheel):
    for name in ("launcher", "chainmail-info", "chainmail-pmix"):
        found = [entry for entry in wheel.infolist() if entry.filename.endswith(f".data/scripts/{name}")]
        must(len(found) == 1, f"{len(found)} programs {name}")
        must(found[0].external_attr >> 16 & 0o111, f"{name} may not be executed")
        must(wheel.read(found[0]).startswith(sbom.ELF), f"{name} is no machine code")


def check_bill(wheel, names):
    bills = [name for name in names if ".dist-info/sboms/" in name]
    must(len(bills) == 1, f"{len(bills)} bills of materials")
    files = {name: wheel.read(name) for name in names}
    document = files[bills[0]].decode()
    missing = sbom.missing_from(document, files)
    must(not missing, f"not in the bill of materials, or otherwise: {missing}")
    # The comparison can fail.
    library = next(name for name in sbom.machine_code(files))
    changed = files | {library: files[library][:-1] + bytes([files[library][-1] ^ 1])}
    must(sbom.missing_from(document, changed) == [library], "a flipped bit is not seen")
    for entry in sbom.bundled_in(sbom.machine_code(files)):
        must(any(name.endswith(f"licenses/third_party/{entry.name}") for name in names), f"no licence of {entry.name}")


def main():
    path, *torches = sys.argv[1:]
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        check_libraries(names, torches)
        check_programs(wheel)
        check_bill(wheel, names)
        must(any(name == "chainmail/include/chainmail/chainmail.h" for name in names), "no headers")
    proved = tag.proved_by(path)
    must(pathlib.Path(path).stem.endswith(proved), f"{path}: auditwheel proves {proved}")
    print(f"{len(names)} files; auditwheel proves {proved}")


if __name__ == "__main__":
    main()
