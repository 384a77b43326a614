# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Conan 2 recipe: conan create packaging/conan -s compiler.cppstd=20 [-o chainmail/*:library=False]

Everything but LibTorch is a package of the system (apt), since those are the libraries that Chainmail is
tested with. LibTorch is the one that CHAINMAIL_LIBTORCH names.
"""

import os
import re

from conan import ConanFile
from conan.errors import ConanException, ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy
from conan.tools.system.package_manager import Apt

SOURCES = ("CMakeLists.txt", "LICENSE", "base/*", "cmake/*", "deploy/*", "examples/*", "launcher/*", "ops/*",
           "packaging/*", "plugin/*", "tools/*", "tests/support/netns_nodes.sh")


class Chainmail(ConanFile):
    name = "chainmail"
    description = "Multi-node data parallelism for LibTorch programs, with a launcher"
    license = "BSD-3-Clause"
    topics = ("libtorch", "distributed", "allreduce", "launcher")
    package_type = "shared-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"library": [True, False], "cuda": [True, False]}
    test_package_folder = "../consumer"
    default_options = {"library": True, "cuda": False}

    @property
    def _root(self):
        return os.path.normpath(os.path.join(self.recipe_folder, "..", ".."))

    def set_version(self):
        with open(os.path.join(self._root, "CMakeLists.txt"), encoding="utf-8") as file:
            self.version = self.version or re.search(r"project\(chainmail VERSION ([0-9.]+)", file.read()).group(1)

    def export_sources(self):
        for pattern in SOURCES:
            copy(self, pattern, self._root, self.export_sources_folder)

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("Chainmail is for Linux")
        check_min_cppstd(self, 20)

    def layout(self):
        cmake_layout(self)

    def system_requirements(self):
        packages = ["libasio-dev", "libgoogle-glog-dev", "libhwloc-dev", "libssl-dev", "libxxhash-dev",
                    "nlohmann-json3-dev", "pkg-config"]
        if self.options.library:
            packages += ["libbenchmark-dev", "libgflags-dev", "libhwy-dev", "zlib1g-dev"]
        Apt(self).install(packages, check=True)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["CHAINMAIL_BUILD_TESTS"] = False
        toolchain.cache_variables["CHAINMAIL_LIBRARY"] = bool(self.options.library)
        toolchain.cache_variables["CHAINMAIL_CUDA"] = "ON" if self.options.cuda else "OFF"
        if self.options.library:
            libtorch = os.environ.get("CHAINMAIL_LIBTORCH")
            if not libtorch:
                raise ConanException("set CHAINMAIL_LIBTORCH to the torch folder of a wheel or an unpacked "
                                     "LibTorch, or take -o chainmail/*:library=False for the launcher alone")
            toolchain.cache_variables["CHAINMAIL_LIBTORCH"] = libtorch
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build(target="products")

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        # The CMake package is Chainmail's own, not one that Conan writes.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "chainmail")]
        self.cpp_info.libs = ["chainmail"] if self.options.library else []
        self.runenv_info.prepend_path("PATH", os.path.join(self.package_folder, "bin"))
