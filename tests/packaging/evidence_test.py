# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""packaging/evidence.py on small programs: what they contain unsaid, and what they are said to contain."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Of everything that packaging/sbom.py names for the launcher.
LAUNCHER = """\
#include <locale>
extern "C" [[gnu::noinline]] int XXH3_64bits() { return 1; }
extern "C" int hwloc_topology_init() { return 2; }
namespace asio { [[gnu::noinline]] int run() { return 3; } }
namespace nlohmann { [[gnu::noinline]] int parse() { return 4; } }
int main() { return std::locale::classic().name().size() + XXH3_64bits() + asio::run() + nlohmann::parse(); }
"""


@unittest.skipUnless(shutil.which("g++") and shutil.which("nm"), "no g++ or no nm")
class Evidence(unittest.TestCase):
    def setUp(self):
        self.build = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for folder in ("bin", "lib"):
            (self.build / folder).mkdir()

    def compile(self, name, text, *options):
        subprocess.run(["g++", "-x", "c++", "-", "-o", self.build / name, *options], input=text, text=True, check=True)

    def check(self, *options):
        ended = subprocess.run([sys.executable, "-B", ROOT / "packaging/evidence.py", *options, self.build],
                               capture_output=True, text=True, timeout=100)
        return ended.returncode, ended.stdout + ended.stderr

    def test_all_is_said(self):
        self.compile("bin/launcher", LAUNCHER, "-static-libstdc++")
        self.assertEqual(self.check(), (0, "evidence: 1 files contain what packaging/sbom.py says\n"))

    def test_something_is_not_said(self):
        self.compile("bin/launcher", LAUNCHER + "namespace hwy { int chosen() { return 5; } }", "-static-libstdc++")
        for options in ([], ["--at-most"]):
            code, said = self.check(*options)
            self.assertEqual(code, 1)
            self.assertIn("bin/launcher contains highway, which packaging/sbom.py does not say", said)
            self.assertEqual(said.count("error"), 1)

    def test_something_is_not_there(self):
        self.compile("bin/launcher", LAUNCHER)  # with the shared libstdc++
        code, said = self.check()
        self.assertEqual(code, 1)
        self.assertRegex(said, "says that .*/bin/launcher contains gcc-12, of which it has no symbol")
        self.assertEqual(self.check("--at-most")[0], 0)

    def test_a_library_that_no_entry_names(self):
        self.compile("lib/libchainmail_mpi.so", "namespace asio { int run() { return 3; } }", "-shared", "-fPIC")
        self.assertIn("libchainmail_mpi.so contains asio", self.check("--at-most")[1])

    def test_stripped(self):
        self.compile("bin/launcher", LAUNCHER, "-s", "-static-libstdc++")
        code, said = self.check()
        self.assertEqual(code, 1)
        self.assertIn("was stripped", said)

    def test_nothing_was_built(self):
        self.assertEqual(self.check()[0], 1)


if __name__ == "__main__":
    unittest.main()
