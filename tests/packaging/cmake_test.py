# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""What find_package(chainmail) finds and says, in the layout of the wheel, beside made-up LibTorches."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PACKAGE = """\
cmake_minimum_required(VERSION 3.25)
project(package VERSION 1.2.3 LANGUAGES NONE)
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_LIBDIR torch2.11)
set(CMAKE_INSTALL_BINDIR bin)
set(CHAINMAIL_TORCH_MINOR 2.11)
set(LibTorch_VERSION 2.11.0)
set(CHAINMAIL_LIBTORCH_PLACES "\\${PACKAGE_PREFIX_DIR}/../torch")
configure_package_config_file(%s/cmake/chainmailConfig.cmake.in chainmailConfig.cmake
                              INSTALL_DESTINATION torch2.11/cmake/chainmail)
"""
CONSUMER = """\
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES CXX)
%s
message(STATUS "found: ${LibTorch_VERSION} at ${LibTorch_ROOT} by ${LibTorch_torch_cpu_LIBRARY}")
if(TARGET chainmail::launcher)
  get_target_property(launcher chainmail::launcher IMPORTED_LOCATION)
  message(STATUS "launcher: ${launcher}")
endif()
"""


def write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def cmake(*arguments):
    environment = {name: value for name, value in os.environ.items() if name != "CHAINMAIL_LIBTORCH"}
    ended = subprocess.run(["cmake", *map(str, arguments)], capture_output=True, text=True, timeout=100,
                           env=environment)
    return ended.returncode, ended.stdout + re.sub(r"\s+", " ", ended.stderr)


class FindPackage(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()
        write(self.folder / "package/CMakeLists.txt", PACKAGE % ROOT)
        code, said = cmake("-S", self.folder / "package", "-B", self.folder / "made")
        self.assertEqual(code, 0, said)
        self.site = self.folder / "lib/python3.11/site-packages"
        config = self.site / "chainmail/torch2.11/cmake/chainmail"
        write(config / "chainmailConfig.cmake", (self.folder / "made/chainmailConfig.cmake").read_text())
        write(config / "chainmailTargets.cmake")
        write(config / "FindLibTorch.cmake", (ROOT / "cmake/FindLibTorch.cmake").read_text())
        self.config = config

    def torch(self, place, version="2.11.0"):
        numbers = zip(("MAJOR", "MINOR", "PATCH"), version.split("."))
        write(place / "include/ATen/ATen.h")
        write(place / "include/torch/headeronly/version.h",
              "".join(f"#define TORCH_VERSION_{name} {number}\n" for name, number in numbers))
        for library in ("libc10.so", "libtorch_cpu.so"):
            write(place / "lib" / library)
        return place

    def configure(self, find, *options):
        write(self.folder / "consumer/CMakeLists.txt", CONSUMER % find)
        return cmake("-S", self.folder / "consumer", "-B", self.folder / "build", f"-Dchainmail_DIR={self.config}",
                     *options)

    def test_another_libtorch_is_looked_for_again(self):
        find = "find_package(chainmail REQUIRED)"
        for place in (self.torch(self.folder / "one"), self.torch(self.folder / "two", "2.11.1")):
            code, said = self.configure(find, f"-DCHAINMAIL_LIBTORCH={place}")
            self.assertEqual(code, 0, said)
            self.assertIn(f"at {place} by {place}/lib/libtorch_cpu.so", said)
        code, said = self.configure(find, f"-DCHAINMAIL_LIBTORCH={self.torch(self.folder / 'other', '2.15.0')}")
        self.assertEqual(code, 1)
        self.assertIn(f"was built with LibTorch 2.11.0, found is 2.15.0 at {self.folder}/other", said)
        beside = self.torch(self.site / "torch")
        code, said = self.configure(find, "-UCHAINMAIL_LIBTORCH")
        self.assertEqual(code, 0, said)
        self.assertIn(f"found: 2.11.0 at {beside} ", said)

    def test_a_libtorch_that_has_moved_is_looked_for_again(self):
        old = self.torch(self.folder / "first/torch")
        paths = f"-DCMAKE_PREFIX_PATH={self.folder}/first;{self.folder}/second"
        self.assertIn(f"at {old} ", self.configure("find_package(chainmail REQUIRED)", paths)[1])
        (self.folder / "first").rename(self.folder / "second")
        code, said = self.configure("find_package(chainmail REQUIRED)", paths)
        self.assertEqual(code, 0, said)
        self.assertIn(f"at {self.folder}/second/torch ", said)

    def test_the_version_is_that_of_the_targets(self):
        """Those of find_package(Torch), whatever CHAINMAIL_LIBTORCH says."""
        theirs = self.torch(self.folder / "theirs", "2.15.0")
        code, said = self.configure(
            f"add_library(torch_cpu SHARED IMPORTED)\nset(TORCH_INSTALL_PREFIX {theirs})\n"
            "find_package(chainmail REQUIRED)", f"-DCHAINMAIL_LIBTORCH={self.torch(self.folder / 'mine')}")
        self.assertEqual(code, 1, said)
        self.assertIn(f"found is 2.15.0 at {theirs}", said)

    def test_what_is_missing_is_named(self):
        self.torch(self.site / "torch")
        write(self.site / "chainmail/torch2.11/libchainmail_mpi.so")
        code, said = self.configure("find_package(chainmail REQUIRED COMPONENTS mpi cuda Launcher launcher)")
        self.assertEqual(code, 1)
        self.assertIn(f"no libchainmail_cuda.so in {self.site}/chainmail/torch2.11", said)
        self.assertIn("no component 'Launcher', only cuda, mpi and launcher", said)
        self.assertIn(f"no program launcher in {self.site}/chainmail/bin", said)
        self.assertNotIn("libchainmail_mpi.so in", said)
        code, said = self.configure("find_package(chainmail REQUIRED COMPONENTS mpi OPTIONAL_COMPONENTS cuda more)")
        self.assertEqual(code, 0, said)

    def test_no_libtorch(self):
        code, said = self.configure("set(CMAKE_FIND_USE_CMAKE_SYSTEM_PATH OFF)\n"
                                    "set(CMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH OFF)\n"
                                    "find_package(chainmail REQUIRED)")
        self.assertEqual(code, 1)
        self.assertIn("set CHAINMAIL_LIBTORCH to the torch folder of a wheel", said)
        self.assertNotIn("tools/setup.sh", said)

    def test_the_launcher_of_an_environment_and_of_a_target_folder(self):
        self.torch(self.site / "torch")
        for launcher in (self.site / "bin/launcher", self.folder / "bin/launcher"):
            write(launcher)
            code, said = self.configure("find_package(chainmail REQUIRED COMPONENTS launcher)")
            self.assertEqual(code, 0, said)
            self.assertIn(f"launcher: {launcher}\n", said)


if __name__ == "__main__":
    unittest.main()
