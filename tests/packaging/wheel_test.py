# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Wheels and bills of materials out of made-up prefixes, whose machine code is that of this machine's programs."""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "packaging"), str(ROOT / "packaging/wheel")]
import assemble  # noqa: E402
import sbom  # noqa: E402
import wheel_file  # noqa: E402

CODE = pathlib.Path(shutil.which("true")).resolve()


def write(path, data=b"text\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def make_prefix(folder, minor):
    """What `cmake --install` leaves, as far as a wheel takes it."""
    libraries = folder / f"torch{minor}"
    for name in ("libchainmail.so.0.2", "libchainmail_mpi.so", "libchainmail_cuda.so"):
        write(libraries / name, CODE.read_bytes())
    (libraries / "libchainmail.so").symlink_to("libchainmail.so.0.2")
    write(libraries / "libchainmail_torch_nccl.so", CODE.read_bytes())
    for name in ("chainmailConfig.cmake", "chainmailConfigVersion.cmake", "chainmailTargets.cmake",
                 "FindLibTorch.cmake"):
        write(libraries / "cmake/chainmail" / name, f"# {name} {minor}\n".encode())
    for program in assemble.PROGRAMS:
        write(folder / "bin" / program, CODE.read_bytes())
    for page in assemble.PAGES:
        write(folder / page)
    write(folder / "include/chainmail/chainmail.h")


class Wheels(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.third_party = self.folder / "third_party"
        write(self.third_party / "sources", b"google-glog\t0.6.0-2\tBSD-3-Clause\nhighway\t1.0.3-3\tApache-2.0\n")
        for name in ("google-glog", "highway"):
            write(self.third_party / "copyright" / name)
        self.prefixes = {minor: self.folder / minor for minor in ("2.15", "2.11")}
        for minor, prefix in self.prefixes.items():
            make_prefix(prefix, minor)

    def contents(self):
        return assemble.contents("1.2.3", self.third_party, self.prefixes)

    def test_ranges_of_torch(self):
        self.assertEqual(assemble.torch_range(["2.11"]), ">=2.11,<2.12")
        self.assertEqual(assemble.torch_range(["2.9", "2.10"]), ">=2.9,<2.11")
        self.assertEqual(assemble.torch_range(["2.11", "2.15"]), ">=2.11,<2.16,!=2.12.*,!=2.13.*,!=2.14.*")

    def test_one_library_for_each_torch(self):
        files, info, programs = self.contents()
        self.assertEqual(info, "chainmail-1.2.3.dist-info")
        self.assertEqual(programs, {f"chainmail-1.2.3.data/scripts/{name}" for name in assemble.PROGRAMS})
        libraries = sorted(name for name in files if name.endswith(".so") or ".so." in name)
        self.assertEqual(libraries, [f"chainmail/torch{minor}/{name}" for minor in ("2.11", "2.15") for name in (
            "libchainmail.so.0.2", "libchainmail_cuda.so", "libchainmail_mpi.so")])
        found = {}
        exec(files["chainmail/_build.py"], found)  # pylint: disable=exec-used
        self.assertEqual(found["LIBRARIES"], {"2.11": "torch2.11/libchainmail.so.0.2",
                                              "2.15": "torch2.15/libchainmail.so.0.2"})
        self.assertEqual(found["VERSION"], "1.2.3")
        self.assertIn(b'"2.11;2.15"', files["chainmail/cmake/chainmailConfig.cmake"])

    def test_headers_of_different_versions_are_refused(self):
        write(self.prefixes["2.15"] / "include/chainmail/chainmail.h", b"another\n")
        with self.assertRaisesRegex(SystemExit, "headers of the prefixes differ"):
            self.contents()

    def test_two_libraries_are_refused(self):
        write(self.prefixes["2.15"] / "torch2.15/libchainmail.so.0.1", CODE.read_bytes())
        with self.assertRaisesRegex(SystemExit, "2 files are called libchainmail"):
            self.contents()

    def test_the_same_bytes(self):
        made = []
        for name, moment in (("first", "1700000000"), ("second", "1700000000"), ("third", "1800000000")):
            os.environ["SOURCE_DATE_EPOCH"] = moment
            self.addCleanup(os.environ.pop, "SOURCE_DATE_EPOCH", None)
            files, info, programs = self.contents()
            wheel_file.write_wheel(self.folder / name, files, info, programs)
            made.append((self.folder / name).read_bytes())
            for prefix in self.prefixes.values():  # times of files are nobody's business
                os.utime(prefix / "include/chainmail/chainmail.h", (time.time(), time.time() - 1000))
        self.assertEqual(made[0], made[1])
        self.assertNotEqual(made[0], made[2])

    def test_no_half_a_wheel(self):
        files, info, _ = self.contents()
        path = self.folder / "chainmail.whl"
        path.write_bytes(b"an older one")
        os.environ["SOURCE_DATE_EPOCH"] = "5000000000"  # which no zip file can hold
        self.addCleanup(os.environ.pop, "SOURCE_DATE_EPOCH")
        with self.assertRaises(struct.error):
            wheel_file.write_wheel(path, files, info)
        self.assertEqual(path.read_bytes(), b"an older one")

    def test_programs_may_be_executed(self):
        files, info, programs = self.contents()
        wheel_file.write_wheel(self.folder / "wheel", files, info, programs)
        with zipfile.ZipFile(self.folder / "wheel") as wheel:
            modes = {entry.filename: entry.external_attr >> 16 & 0o777 for entry in wheel.infolist()}
        self.assertEqual({name for name, mode in modes.items() if mode == 0o755}, programs)
        self.assertEqual(set(modes.values()), {0o755, 0o644})

    def test_the_bill_has_every_file_of_machine_code(self):
        files, info, _ = self.contents()
        document = files[f"{info}/sboms/chainmail.cdx.json"].decode()
        self.assertEqual(sbom.missing_from(document, files), [])
        flipped = files | {"chainmail/torch2.11/libchainmail_mpi.so": CODE.read_bytes() + b"x"}
        self.assertEqual(sbom.missing_from(document, flipped), ["chainmail/torch2.11/libchainmail_mpi.so"])
        added = files | {"chainmail/torch2.11/new.so": CODE.read_bytes()}
        self.assertEqual(sbom.missing_from(document, added), ["chainmail/torch2.11/new.so"])

    def test_the_bill_is_valid_and_names_what_is_bundled(self):
        files, info, _ = self.contents()
        document = files[f"{info}/sboms/chainmail.cdx.json"].decode()
        from cyclonedx.schema import SchemaVersion
        from cyclonedx.validation.json import JsonStrictValidator
        self.assertIsNone(JsonStrictValidator(SchemaVersion.V1_6).validate_str(document))
        parts = {entry["name"]: entry["version"] for entry in json.loads(document)["components"]
                 if entry["type"] == "library"}
        self.assertEqual(parts["google-glog"], "0.6.0-2")
        wanted = subprocess.run(["dpkg-query", "-W", "-f", "${source:Version}", "libssl-dev"], check=True,
                                capture_output=True, text=True).stdout
        self.assertEqual(parts["openssl"], wanted)
        self.assertIn(f"{info}/licenses/third_party/openssl", files)


if __name__ == "__main__":
    unittest.main()
