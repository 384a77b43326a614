# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Starts two ranks by the packaged launcher; with the library, ranks of a project built against it."""

import os

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout


class ChainmailTest(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "VirtualRunEnv"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    @property
    def _has_library(self):
        return bool(self.dependencies["chainmail"].options.library)

    def generate(self):
        CMakeDeps(self).generate()
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False  # it would lie among the sources
        toolchain.generate()

    def build(self):
        if self._has_library:
            cmake = CMake(self)
            cmake.configure()
            cmake.build()

    def test(self):
        program = os.path.join(self.cpp.build.bindir, "train") if self._has_library else "true"
        self.run(f"launcher -H localhost:2 -n 2 --timeout 60 {program}", env="conanrun")
