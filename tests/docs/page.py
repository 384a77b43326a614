# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Types a page of docs/: what a reader would do who follows it from top to bottom.

    <!-- file NAME -->  and a block: writes the file
    a block marked diff: changes the only place of the last .cc file that has its old lines
    a block marked sh: runs the commands
"""

import re
import subprocess

BLOCK = re.compile(r"(?:<!-- (file|not run:) (\S+).*? -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class PageError(Exception):
    pass


def changed(text, diff):
    """`text` with one block of changes applied."""
    lines = diff.splitlines()
    old = "".join(line[1:] + "\n" for line in lines if not line.startswith("+"))
    new = "".join(line[1:] + "\n" for line in lines if not line.startswith("-"))
    # Whole lines only: the old ones must begin a line.
    places = [match.start() for match in re.finditer(r"^" + re.escape(old), text, re.MULTILINE)]
    if len(places) != 1:
        raise PageError(f"{len(places)} places have these lines:\n{old}")
    return text[: places[0]] + new + text[places[0] + len(old):]


def follow(page, folder, environment, see):
    """Does what `page` says in `folder`; see(command, output) gets what every command printed."""
    source = None
    for match in BLOCK.finditer(page.read_text()):
        mark, name, kind, body = match.groups()
        try:
            if mark == "file":
                (folder / name).write_text(body)
                source = folder / name if name.endswith(".cc") else source
            elif kind == "diff":
                source.write_text(changed(source.read_text(), body))
            elif kind == "sh" and mark is None:
                for command in body.replace("\\\n", " ").splitlines():
                    run(command, folder, environment, see)
        except PageError as error:
            line = page.read_text().count("\n", 0, match.start()) + 1
            raise PageError(f"{page}:{line}: {error}") from None


def run(command, folder, environment, see):
    print(f"$ {command}", flush=True)
    result = subprocess.run(["bash", "-ec", command], cwd=folder, env=environment, timeout=600,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, check=False)
    print(result.stdout, flush=True)
    if result.returncode:
        raise PageError(f"code {result.returncode}")
    see(command, result.stdout)
