# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Lays out what Sphinx reads: the repository's pages as they are, and pages made from code.

    pages.py ROOT TARGET LAUNCHER

Pages keep their places, so that links between them lead where they lead in the repository. A folder's
own page is its README.md, or a list of what is in it. Links to sources lead to pages that show them.
"""

import os
import re
import sys
from pathlib import Path

import reference

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/lint"))
import tree  # noqa: E402, the lint checks' list of files

# What a folder of docs/ is called, where its name does not say it.
TITLES = {"coming_from": "Coming from elsewhere", "cluster": "On clusters", "pytorch": "PyTorch",
          "maintainers": "For maintainers", "results": "Measurements"}
SITE = "docs/site/"
PROJECT_PAGES = ("CONTRIBUTING.md", "CHANGELOG.md")
# Code, whose brackets are no links, or a link.
LINK = re.compile(r"(?P<code>^ *```.*?^ *```$|`[^`\n]*`)|\]\((?P<target>[^)\s:#]+)(?P<anchor>#[^)\s]*)?\)",
                  re.MULTILINE | re.DOTALL)
LANGUAGES = {".cc": "cpp", ".h": "cpp", ".cu": "cpp", ".py": "python", ".sh": "bash", ".json": "json",
             ".yaml": "yaml", ".md": "markdown"}


def toctree(pages, caption="", is_hidden=True):
    options = [":maxdepth: 1"] + [":hidden:"] * is_hidden + [f":caption: {caption}"] * bool(caption)
    return "\n".join(["", "```{toctree}", *options, "", *pages, "```", ""])


class Layout:
    def __init__(self, root, target):
        self.root, self.target = Path(root), Path(target)
        self.files = tree.files(root)
        self.shown = set()  # sources that have a page

    def pages(self, folder):
        """Of a folder of docs/: in the order of their links in its README.md, then by name."""
        names = [path for path in self.files if path.endswith(".md") and os.path.dirname(path) == folder
                 and not path.endswith("/README.md")]
        own = f"{folder}/README.md"
        text = tree.read(self.root, own) if own in self.files else ""
        places = {path: text.find(f"]({os.path.basename(path)}") for path in names}
        return sorted(names, key=lambda path: (places[path] < 0, places[path], path))

    def folders(self):
        return sorted({os.path.dirname(path) for path in self.files if path.startswith("docs/")
                       and path.endswith(".md") and path.count("/") > 1 and not path.startswith(SITE)})

    def write(self, path, text):
        place = self.target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def put(self, path, more="", before=""):
        """A page of the repository, with links that a site can follow."""
        def follow(match):
            target, anchor = match["target"], match["anchor"] or ""
            if match["code"] or not target:
                return match.group(0)
            full = os.path.normpath(os.path.join(os.path.dirname(path), target))
            page = self.page_of(full)
            return f"]({os.path.relpath(page, os.path.dirname(path) or '.')}{anchor})"
        # The language has no highlighter, and pictures of it would need a script from elsewhere.
        text = LINK.sub(follow, tree.read(self.root, path)).replace("```mermaid", "```text")
        self.write(self.page_of(path), before + text + more)

    def page_of(self, path):
        """The page that shows a file or folder of the repository."""
        if path.endswith(".md"):
            if path in self.files and not path.startswith("docs/") and "/" in path:
                self.shown.add(path)
            return re.sub(r"(^|/)README\.md$", r"\1index.md", path)
        if path in self.folders():
            return f"{path}/index.md"
        if not (self.root / path).exists():
            return path  # Sphinx says so
        self.shown.add(path)
        return f"{path}/index.md" if (self.root / path).is_dir() else f"{path}.md"

    def put_linked(self):
        """Pages of what pages link to, and of what those link to."""
        done = set()
        while todo := sorted(self.shown - done):
            for path in todo:
                if path.endswith(".md"):
                    self.put(path, before="---\norphan: true\n---\n")
                else:
                    self.put_source(path)
            done.update(todo)

    def put_source(self, path):
        is_folder = (self.root / path).is_dir()
        paths = [one for one in self.files if one.startswith(path + "/")] if is_folder else [path]
        lines = ["---", "orphan: true", "---", "", f"# `{path}`", ""]
        for one in paths:
            try:
                text = tree.read(self.root, one)
            except UnicodeDecodeError:
                continue
            language = LANGUAGES.get(os.path.splitext(one)[1], "text")
            name = [f"## {one[len(path) + 1:]}", ""] if is_folder else []
            fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text) or ["``"]))
            lines += [*name, f"{fence}{language}", text.rstrip("\n"), fence, ""]
        self.write(self.page_of(path), "\n".join(lines))


def lay_out(root, target, launcher):
    """What doxygen complains about, and public symbols without words."""
    layout = Layout(root, target)
    problems = reference.write(layout, launcher)
    for folder in layout.folders():
        pages = layout.pages(folder)
        names = [os.path.basename(page) for page in pages]
        if f"{folder}/README.md" in layout.files:
            layout.put(f"{folder}/README.md", toctree(names))
        else:
            name = os.path.basename(folder)
            title = TITLES.get(name, name.replace("_", " ").capitalize())
            layout.write(f"{folder}/index.md", f"# {title}\n{toctree(names, is_hidden=False)}")
        for page in pages:
            layout.put(page)
    top = layout.pages("docs")
    for page in ["docs/README.md", *top, *PROJECT_PAGES]:
        layout.put(page)
    layout.put("README.md", "".join([
        toctree(["docs/index.md", *top], "Documentation"),
        toctree([f"{folder}/index.md" for folder in layout.folders()], "Subjects"),
        toctree(["reference/launcher.md", "reference/job_schema.md", "reference/environment.md",
                 "reference/api/index.md"], "Reference"),
        toctree(PROJECT_PAGES, "Project")]))
    layout.put_linked()
    return problems


if __name__ == "__main__":
    sys.exit(tree.report(lay_out(*sys.argv[1:])))
