# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""`import chainmail`: a second time in one process, and what it says where the library cannot be opened.

usage: import_test.py, with build/python in PYTHONPATH
"""

import importlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

import torch
import torch.distributed as dist

import chainmail

PACKAGE = pathlib.Path(chainmail.__file__).parent
MINOR = ".".join(torch.__version__.split(".")[:2])


def all_reduce_of_one_rank(options):
    dist.init_process_group("chainmail", pg_options=options)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    return tensor.sum().item()


class Again(unittest.TestCase):
    def test_reloaded(self):
        package = importlib.import_module("chainmail")  # that of now: the other test imports another one
        self.assertEqual(all_reduce_of_one_rank(package.Options(algorithm="flat")), 3)
        package = importlib.reload(package)
        self.assertEqual(all_reduce_of_one_rank(package.Options(algorithm="naive")), 3)

    def test_forgotten_and_imported(self):
        for name in [name for name in sys.modules if name.split(".")[0] == "chainmail"]:
            del sys.modules[name]
        again = importlib.import_module("chainmail")
        self.assertIsNot(again.Options, chainmail.Options)
        self.assertEqual(all_reduce_of_one_rank(again.Options(algorithm="naive")), 3)
        self.assertEqual(all_reduce_of_one_rank(None), 3)


class Refusals(unittest.TestCase):
    """Each in a process of its own, with a copy of the package."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.copy = self.folder / "chainmail"
        shutil.copytree(PACKAGE, self.copy, ignore=shutil.ignore_patterns("*.so*", "__pycache__"))

    def refusal(self, where=None):
        ended = subprocess.run([sys.executable, "-B", "-c", "import chainmail"], capture_output=True, text=True,
                               timeout=100, env=os.environ | {"PYTHONPATH": str(where or self.folder)})
        self.assertEqual(ended.returncode, 1, ended)
        last = ended.stderr.strip().splitlines()[-1]
        self.assertTrue(last.startswith("ImportError: "), ended.stderr)
        return last

    def open_instead(self, library):
        (self.copy / "_build.py").write_text(f'VERSION = "1.2.3"\nLIBRARIES = {{{MINOR!r}: "{library}"}}\n')

    def test_no_such_file(self):
        self.open_instead("libchainmail.so")
        self.assertRegex(self.refusal(), r"libchainmail\.so: there is no such file: install chainmail again")

    def test_what_the_loader_said(self):
        (self.copy / "text.so").write_text("no machine code")
        self.open_instead("text.so")
        self.assertRegex(self.refusal(), r"text\.so: (file too short|invalid ELF header)$")

    def test_a_symbol_that_this_torch_does_not_have(self):
        compiler = shutil.which("c++") or self.skipTest("no c++")
        subprocess.run([compiler, "-x", "c++", "-", "-shared", "-fPIC", "-o", self.copy / "other.so"], check=True,
                       input="void of_another_release(); struct S { S() { of_another_release(); } } s;", text=True)
        self.open_instead("other.so")
        self.assertRegex(self.refusal(), rf"undefined symbol: \S*of_another_release\S*; it was built with a release "
                                         rf"of torch {MINOR}, and torch {torch.__version__.split('+')[0]}\S* in \S+")

    def test_in_a_zip_file(self):
        with zipfile.ZipFile(self.folder / "chainmail.whl", "w") as wheel:
            for path in self.copy.rglob("*.py"):
                wheel.write(path, path.relative_to(self.folder))
        self.assertRegex(self.refusal(self.folder / "chainmail.whl"), "inside of a zip file cannot be opened")


if __name__ == "__main__":
    unittest.main()
