# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""The recipes for conda and conan are read by these tools, and say the version that CMakeLists.txt says."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from rattler_build import RenderConfig, Stage0Recipe, VariantConfig

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
VERSION = re.search(r"project\(chainmail VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)


class Recipes(unittest.TestCase):
    def test_conda(self):
        os.environ.pop("CHAINMAIL_VERSION", None)
        folder = ROOT / "packaging/conda"
        rendered = Stage0Recipe.from_file(str(folder / "recipe.yaml")).render(
            VariantConfig.from_file(str(folder / "variants.yaml")), RenderConfig())
        packages = {entry.recipe.package.name: entry.recipe.package.version for entry in rendered}
        self.assertEqual(packages, {name: VERSION for name in ("chainmail-launcher", "libchainmail", "chainmail")})

    def test_conan(self):
        conan = pathlib.Path(sys.executable).parent / "conan"
        with tempfile.TemporaryDirectory() as home:
            said = subprocess.run([conan, "inspect", "packaging/conan", "--format=json"], cwd=ROOT, check=True,
                                  capture_output=True, text=True, env=os.environ | {"CONAN_HOME": home}).stdout
        recipe = json.loads(said)
        self.assertEqual((recipe["name"], recipe["version"]), ("chainmail", VERSION))
        self.assertEqual(set(recipe["options"]), {"library", "cuda"})


if __name__ == "__main__":
    unittest.main()
