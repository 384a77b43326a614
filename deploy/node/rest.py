# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Requests to a cloud's interface for gcp.py and azure.py: bounded in time, errors as one line on stderr.

Exit codes are those of boot's provider functions: 1 where there is no such key, 2 where the request failed.
"""

import json
import os
import sys
import urllib.error
import urllib.request

SECONDS = 15


class NotThere(Exception):
    """The key is not there."""


def ask(url, body=None, method=None):
    """JSON for JSON, with the token of $CHAINMAIL_TOKEN, the metadata server's answer."""
    token = json.loads(os.environ["CHAINMAIL_TOKEN"])["access_token"]
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        url, data=data, method=method, headers={"Authorization": "Bearer " + token, "Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return json.loads(answer.read() or b"{}")


def main(words, what):
    """Runs the function of `words` that the command line names."""
    try:
        words[sys.argv[1]](*sys.argv[2:])
    except NotThere:
        return 1
    except urllib.error.HTTPError as error:
        said = error.read(300).decode(errors="replace").replace("\n", " ")
        print(f"{what} answers {error.code} for {error.url}: {said}", file=sys.stderr)
        return 2
    except (OSError, KeyError, IndexError, TypeError, ValueError) as error:
        print(f"{what}: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return 0
