# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Settings of Sphinx; tools/docs.sh runs it over what pages.py lays out."""

import re
from pathlib import Path

CMAKE_LISTS = Path(__file__).resolve().parents[2] / "CMakeLists.txt"

project = "Chainmail"
author = "the Chainmail authors"
project_copyright = "2026, the Chainmail authors"
release = version = re.search(r"VERSION ([\d.]+) LANGUAGES", CMAKE_LISTS.read_text()).group(1)

extensions = ["myst_parser", "breathe"]
root_doc = "index"
exclude_patterns = ["doxygen"]
nitpicky = True
# What other libraries declare, and what is not for programs.
nitpick_ignore_regex = [("cpp:.*", r"(std|at|c10|c10d|torch|(chainmail::)?internal)(::.*)?"),
                        ("cpp:.*", r"chainmail(::functions)?|Impl")]

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4  # as far down as pages link
smartquotes = False  # would make a dash of the two before an option

breathe_default_project = "chainmail"
breathe_domain_by_extension = {"h": "cpp"}
breathe_show_include = False
cpp_id_attributes = ["CHAINMAIL_API"]

html_theme = "furo"
html_title = f"Chainmail {release}"
html_copy_source = False
html_show_sphinx = False
