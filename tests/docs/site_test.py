#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Makes the site of the documentation, and plants errors in a small one.

    site_test.py LAUNCHER SPHINX_ENVIRONMENT
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAUNCHER, ENVIRONMENT = sys.argv[1:3]
sys.path.insert(0, str(ROOT / "tools/lint"))
import doxygen  # noqa: E402, counts the public symbols

# What the small site is made of; its pages are written here.
PARTS = ("docs/site", "docs/maintainers/Doxyfile", "tools/docs.sh", "tools/setup", "tools/lint", "CMakeLists.txt", "base/export.h",
         "base/error.h", "plugin/job/environment/env.cc")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/README.md", "docs/env.md", "docs/jobs.md",
         "docs/launcher.md", "docs/folder/one.md")
SPDX = "// SPDX-License-Identifier: BSD-3-Clause\n"


def make(root, site):
    # Services that build for others ask for colours; messages go to files all the same.
    return subprocess.run(
        [root / "tools/docs.sh", "--launcher", LAUNCHER, "--env", ENVIRONMENT, site], timeout=500, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, env={**os.environ, "FORCE_COLOR": "1"})


class SiteTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.root = self.folder / "root"

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def make_small(self, changes=None, declaration=""):
        """Of a few pages; `changes` are texts of some of them."""
        for part in PARTS:
            place = self.root / part
            place.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, place, dirs_exist_ok=True)
            else:
                shutil.copy(ROOT / part, place)
        for page in PAGES:
            self.write(page, f"# {page}\n" + (changes or {}).get(page, ""))
        self.write("plugin/include/chainmail/a.h", f"{SPDX}\n// About <this>.\n\n/// All.\nnamespace chainmail {{\n"
                   f"/// One.\nclass One {{}};\n{declaration}\n}}\n")
        return make(self.root, self.folder / "site")

    def test_whole_site(self):
        """Every page is there, and the signatures shown are as many as there are public symbols."""
        site = self.folder / "site"
        result = make(ROOT, site)
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertNotIn("WARNING", result.stdout)
        for page in (ROOT / "docs").rglob("*.md"):
            place = page.relative_to(ROOT).with_suffix(".html")
            place = place.with_name("index.html") if place.stem == "README" else place
            self.assertTrue((site / place).is_file(), place)
        for option in ("cmdoption-launcher-n", "cmdoption-launcher-logs-f"):
            self.assertIn(f'id="{option}"', (site / "reference/launcher.html").read_text())
        self.assertIn("CHAINMAIL_LOG", (site / "reference/environment.html").read_text())
        with tempfile.TemporaryDirectory() as xml:
            doxygen.run_doxygen(shutil.which("doxygen"), ROOT, xml)
            public = [name for _, name, _ in doxygen.symbols(xml).values() if not name.startswith("namespace ")]
        shown = sum(len(re.findall(r'<dt class="sig sig-object cpp"', page.read_text()))
                    for page in (site / "reference/api").rglob("*.html"))
        self.assertEqual(shown, len(public))

    def test_small_site_follows_links(self):
        result = self.make_small({
            "README.md": "[a](docs/folder/) [b](tools/docs.sh) [c](docs/folder/one.md#deep)\n",
            "docs/folder/one.md": "## Deep\n"})
        self.assertEqual(result.returncode, 0, result.stdout)
        front = (self.folder / "site/index.html").read_text()
        for link in ("docs/folder/index.html", "tools/docs.sh.html", "docs/folder/one.html#deep"):
            self.assertIn(f'href="{link}"', front)
        source = (self.folder / "site/tools/docs.sh.html").read_text()
        self.assertIn("usage: tools/docs.sh", re.sub("<[^>]*>", "", source))

    def test_errors_leave_the_old_site(self):
        self.assertEqual(self.make_small().returncode, 0)
        # Two errors of Sphinx at once, since each run takes seconds.
        result = self.make_small({"docs/jobs.md": "\n[a](gone.md)\n", "docs/folder/one.md": "\n[b](../env.md#gone)\n"})
        self.assertNotEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"(?m)^docs/jobs\.md:3: WARNING: .*gone\.md")
        self.assertRegex(result.stdout, r"(?m)^docs/folder/one\.md:3: WARNING: .*gone")
        self.assertTrue((self.folder / "site/docs/jobs.html").is_file())
        result = self.make_small(declaration="struct Two { int unsaid = 0; };")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("member chainmail::Two::unsaid is not documented", result.stdout)
        self.assertIn("struct chainmail::Two is not documented", result.stdout)

    def test_folder_with_other_things(self):
        (self.folder / "mine").mkdir()
        (self.folder / "mine/file").write_text("")
        result = make(ROOT, self.folder / "mine")
        self.assertEqual(result.returncode, 1)
        self.assertIn("holds something else than a site", result.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
