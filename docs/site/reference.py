# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Pages made from code: the launcher's options (its man page), job files (the JSON Schema that it prints),
environment variables (where the sources name them) and the public headers (doxygen's XML)."""

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/lint"))
import doxygen  # noqa: E402, what the lint check runs
import environment  # noqa: E402, as are these
import tree  # noqa: E402

INCLUDES = "plugin/include/"
SETTER = re.compile(r'\{"([A-Za-z0-9_]+)", "([^"]+)"\}')
HIDDEN_SUBCLASS = re.compile(r"<derivedcompoundref [^>]*>chainmail::internal::[^\n]*</derivedcompoundref>")
MARKUP = re.compile(r"([\\`*_<>\[\]{}$|])")
ESCAPE = re.compile(r"\\(\(aq|fB|fI|fR|-|e|&)")
ESCAPES = {"(aq": "'", "fB": "", "fI": "", "fR": "", "-": "-", "e": "\\", "&": ""}


def plain(text):
    """A line of a man page without its marks."""
    return ESCAPE.sub(lambda match: ESCAPES[match[1]], text).strip()


def escaped(text):
    return MARKUP.sub(r"\\\1", text)


def launcher_page(man):
    """The man page that the launcher writes, as Markdown: .TH, .SH, .SS, .TP, .PP, .br and fonts alone."""
    lines = ["# The launcher's options", "",
             "What `launcher --write-man` prints. [launcher.md](../docs/launcher.md) explains it.", "",
             "```{program} launcher", "```", ""]
    tag, body = None, []

    def end_block():
        nonlocal tag
        text = escaped(" ".join(body)).strip()
        body.clear()
        if tag and tag.startswith("-"):
            lines.extend([f"````{{option}} {tag}", text, "````", ""])
        elif tag or text:
            lines.extend([f"`{tag}`", f": {text}", ""] if tag else [text, ""])
        tag = None

    takes_tag = False
    for line in man.splitlines():
        macro, _, rest = line.partition(" ") if line.startswith(".") else ("", "", line)
        if macro in (".TH",):
            continue
        if takes_tag:
            tag, takes_tag = plain(rest), False
        elif macro in (".SH", ".SS"):
            end_block()
            title = plain(rest.strip('"'))
            lines.extend([f"## {title.capitalize()}", ""] if macro == ".SH" else [f"### {escaped(title)}", ""])
            if macro == ".SS" and not title[0].isupper():
                lines.extend([f"```{{program}} launcher {title.split()[0]}", "```", ""])
        elif macro in (".TP", ".PP"):
            end_block()
            takes_tag = macro == ".TP"
        elif macro == ".br":
            end_block()
        elif macro in ("", ".B", ".I"):
            body.append(plain(rest))
        elif macro in (".BR", ".RB", ".IR"):
            body.append(plain(re.sub(r" (?=[^ ]*$)", "", rest)))
        else:
            raise ValueError(f"the launcher's man page has {macro}, which docs/site/reference.py does not know")
    end_block()
    return "\n".join(lines)


def environment_page(root):
    setters = dict(SETTER.findall(tree.read(root, environment.LIST_FILE)))
    named = environment.names_in_code(root)
    lines = ["# Environment variables in the code", "",
             "What the sources name as variables of the environment; [env.md](../docs/env.md) says what "
             "each of them means, and also those that only MPI libraries and schedulers set.", "",
             "| variable | set by, where the library reads it | named in |", "|---|---|---|"]
    for name in sorted(named):
        lines.append(f"| `{name}` | {setters.get(name, '')} | `{named[name]}` |")
    return "\n".join(lines) + "\n"


def first_words(text):
    """What a header says about itself, between its licence and its code."""
    words = []
    for line in text.splitlines():
        if line.startswith("//") and not line.startswith(("///", "// SPDX")):
            words.append(line[2:].strip())
        elif line.strip() and not line.startswith("//"):
            break
    return escaped("\n".join(words).strip())


# Of a symbol's kind in doxygen's XML: the directive that shows it.
DIRECTIVES = {"class": "doxygenclass", "struct": "doxygenstruct", "concept": "doxygenconcept",
              "function": "doxygenfunction", "enum": "doxygenenum", "typedef": "doxygentypedef",
              "variable": "doxygenvariable", "define": "doxygendefine"}


def symbols_by_header(xml):
    """Header -> its symbols as (line, kind, name, arguments), in their order there; members are shown with
    their class."""
    found = {}
    for path in xml.glob("*.xml"):
        for compound in ElementTree.parse(path).getroot().findall("compounddef"):
            kind, name = compound.get("kind"), compound.findtext("compoundname")
            if kind in ("class", "struct", "concept"):
                add_symbol(found, compound, kind, name, "")
            elif kind in ("namespace", "file"):
                scope = f"{name}::" if kind == "namespace" else ""
                for member in compound.iter("memberdef"):
                    add_symbol(found, member, member.get("kind"), scope + member.findtext("name"),
                               member.findtext("argsstring") or "")
    for symbols in found.values():
        classes = tuple(f"{name}::" for _, kind, name, _ in symbols if kind in ("class", "struct"))
        symbols[:] = sorted(symbol for symbol in symbols if not symbol[2].startswith(classes))
    return found


def add_symbol(found, element, kind, name, arguments):
    if doxygen.is_documented(element) and "internal" not in name:
        at = element.find("location")
        found.setdefault(at.get("file"), []).append((int(at.get("line")), kind, name, arguments))


def header_page(layout, path, name, symbols):
    # Comments that name a header link to it by doxygen's word for its text.
    label = os.path.basename(path).replace("_", "__").replace(".", "_8") + "_source"
    lines = [f"({label})=", f"# `<{name}>`", "", first_words(tree.read(layout.root, path)), ""]
    for _, kind, symbol, arguments in symbols:
        is_overloaded = sum(symbol == other[2] for other in symbols) > 1
        lines += [f"```{{{DIRECTIVES[kind]}}} {symbol}{arguments if is_overloaded else ''}",
                  *[":members:", ":protected-members:"] * (kind in ("class", "struct")), "```", ""]
    return "\n".join(lines)


def header_pages(layout, xml):
    headers = {}  # as programs include them -> where they are
    for path in layout.files:
        if doxygen.HEADERS.fullmatch(path):
            headers[path.removeprefix(INCLUDES) if path.startswith(INCLUDES)
                    else f"chainmail/{os.path.basename(path)}"] = path
    symbols = symbols_by_header(xml)
    names = [name.removeprefix("chainmail/").removesuffix(".h") for name in sorted(headers)]
    for page, (name, path) in zip(names, sorted(headers.items())):
        layout.write(f"reference/api/{page}.md", header_page(layout, path, name, symbols.get(path, [])))
    layout.write("reference/api/index.md", "\n".join([
        "# The C++ API", "", "One page for each public header. `<chainmail/chainmail.h>` includes all but "
        "`<chainmail/backend.h>`.", "", "```{toctree}", ":maxdepth: 1", "", *names, "```", ""]))


def write(layout, launcher):
    """The pages, and doxygen's XML in target/doxygen; what doxygen.py complains about."""
    program = shutil.which("doxygen")
    if program is None:
        raise FileNotFoundError("doxygen is missing: install the package doxygen")

    def run(*words):
        return subprocess.run([launcher, *words], stdout=subprocess.PIPE, text=True, timeout=30, check=True).stdout
    layout.write("reference/launcher.md", launcher_page(run("--write-man")))
    layout.write("reference/job_schema.md", "\n".join([
        "# The schema of job files", "", "What `launcher job schema` prints, in JSON Schema 2020-12. "
        "[jobs.md](../docs/jobs.md) explains it.", "", "```json", run("job", "schema").rstrip("\n"), "```", ""]))
    layout.write("reference/environment.md", environment_page(layout.root))
    folder = layout.target / "doxygen"
    folder.mkdir(parents=True, exist_ok=True)
    problems = doxygen.check_in(folder, program, layout.root)[0]
    for path in folder.glob("xml/*.xml"):
        path.write_text(HIDDEN_SUBCLASS.sub("", path.read_text()))
    header_pages(layout, folder / "xml")
    return problems
