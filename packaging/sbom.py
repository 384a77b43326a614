# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""The software bill of materials of a package, in CycloneDX 1.6: what of others is compiled into it, and
every file of machine code with its SHA-256.

    python packaging/sbom.py NAME VERSION FOLDER THIRD_PARTY

prints that of the files in FOLDER. Needs cyclonedx-python-lib (tools/setup.sh --packages).
"""

import dataclasses
import datetime
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import uuid

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.dependency import Dependency
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

ELF = b"\x7fELF"
# Two packages of the same bytes have the same serial number.
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "chainmail.sbom")

LIBRARY = ("libchainmail.so",)
LAUNCHER = ("launcher", "chainmail-launcher")
PMIX = ("chainmail-pmix",)
BENCH = ("chainmail-bench",)
INFO = ("chainmail-info",)


@dataclasses.dataclass(frozen=True)
class Bundled:
    """A Debian source package whose code is inside of files of ours."""

    name: str
    binary: str
    """The Debian package that it was compiled from; empty for those of packaging/third_party."""
    licence: str
    inside: tuple
    """How the names of these files begin."""
    sign: str
    """What of it is defined in such a file before it is stripped, as a pattern for demangled names."""


BUNDLED = (
    Bundled("google-glog", "", "BSD-3-Clause", LIBRARY + BENCH + INFO, r"\bgoogle::LogMessage::"),
    Bundled("highway", "", "Apache-2.0", LIBRARY + BENCH + INFO, r"\bhwy::"),
    Bundled("openssl", "libssl-dev", "Apache-2.0", LIBRARY + BENCH, r"\bOPENSSL_init_crypto\b"),
    Bundled("xxhash", "libxxhash-dev", "BSD-2-Clause", LIBRARY + BENCH + INFO + LAUNCHER + PMIX, r"\bXXH(3|_INLINE)_"),
    Bundled("nlohmann-json3", "nlohmann-json3-dev", "MIT", LIBRARY + BENCH + INFO + LAUNCHER + PMIX, r"\bnlohmann::"),
    Bundled("asio", "libasio-dev", "BSL-1.0", LAUNCHER + PMIX, r"\basio::"),
    Bundled("hwloc", "libhwloc-dev", "BSD-3-Clause", LAUNCHER + PMIX, r"\bhwloc_topology_init\b"),
    Bundled("gcc-12", "libstdc++-12-dev", "GPL-3.0-or-later WITH GCC-exception-3.1", LAUNCHER,
            r"\bstd::locale::classic\(\)$"),
    Bundled("gflags", "libgflags-dev", "BSD-3-Clause", BENCH, r"\bgoogle::GetAllFlags\("),
)


def third_party_versions(folder):
    lines = (pathlib.Path(folder) / "sources").read_text(encoding="utf-8").splitlines()
    return {name: version for name, version, _ in (line.split("\t") for line in lines)}


def version_of(bundled, third_party):
    """Of the source package, as Debian counts."""
    if not bundled.binary:
        return third_party_versions(third_party)[bundled.name]
    return subprocess.run(["dpkg-query", "-W", "-f", "${source:Version}", bundled.binary], check=True,
                          capture_output=True, text=True).stdout


def copyright_of(bundled, third_party):
    """The licence text, as Debian has gathered it."""
    if not bundled.binary:
        return (pathlib.Path(third_party) / "copyright" / bundled.name).read_bytes()
    return pathlib.Path(f"/usr/share/doc/{bundled.binary}/copyright").read_bytes()


def bundled_in(names):
    """Those of BUNDLED that are inside of files with these names."""
    names = [os.path.basename(name) for name in names]
    return [entry for entry in BUNDLED if any(name.startswith(entry.inside) for name in names)]


def machine_code(files):
    return {path: data for path, data in files.items() if data.startswith(ELF)}


def bill(name, version, files, third_party):
    """`files`: path in the package -> bytes. The document as text, without what differs between runs."""
    code = machine_code(files)
    root = Component(name=name, version=version, type=ComponentType.APPLICATION, bom_ref=name,
                     licenses=[LicenseExpression("BSD-3-Clause")])
    bom = Bom()
    bom.metadata.component = root
    moment = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    bom.metadata.timestamp = datetime.datetime.fromtimestamp(moment, datetime.timezone.utc)
    edges = {name: []}
    for path in sorted(code):
        digest = hashlib.sha256(code[path]).hexdigest()
        bom.components.add(Component(name=path, type=ComponentType.FILE, bom_ref=f"file:{path}",
                                     hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)]))
        edges[name].append(f"file:{path}")
        edges[f"file:{path}"] = [f"debian:{entry.name}" for entry in bundled_in([path])]
    for entry in bundled_in(code):
        found = version_of(entry, third_party)
        bom.components.add(Component(
            name=entry.name, version=found, type=ComponentType.LIBRARY, bom_ref=f"debian:{entry.name}",
            licenses=[LicenseExpression(entry.licence)],
            purl=PackageURL("deb", "debian", entry.name, found, {"arch": "source", "distro": "bookworm"}),
            properties=[Property(name="chainmail:linked", value="statically")]))
    for source, targets in edges.items():
        bom.dependencies.add(Dependency(_reference(bom, source, root),
                                        [Dependency(_reference(bom, target, root)) for target in targets]))
    content = "\n".join(f"{path} {hashlib.sha256(files[path]).hexdigest()}" for path in sorted(files))
    bom.serial_number = uuid.uuid5(NAMESPACE, f"{name} {version}\n{content}")
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def _reference(bom, name, root):
    if name == root.bom_ref.value:
        return root.bom_ref
    return next(entry.bom_ref for entry in bom.components if entry.bom_ref.value == name)


def files_below(folder):
    folder = pathlib.Path(folder)
    return {path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()}


def missing_from(document, files):
    """Files of machine code that the bill does not have, or has with another digest."""
    listed = {entry["name"]: entry["hashes"][0]["content"]
              for entry in json.loads(document)["components"] if entry["type"] == "file"}
    return [path for path, data in machine_code(files).items()
            if listed.get(path) != hashlib.sha256(data).hexdigest()]


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    sys.stdout.write(bill(sys.argv[1], sys.argv[2], files_below(sys.argv[3]), sys.argv[4]))
