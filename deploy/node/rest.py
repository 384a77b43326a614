# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Requests to a cloud's interface for gcp.py and azure.py: bounded in time, errors as one line on stderr.

Exit codes are those of boot's provider functions: 1 where there is no such key, 2 where the request failed.
"""

import http.client
import json
import os
import sys
import urllib.error
import urllib.request

SECONDS = 15


class NotThere(Exception):
    """The key is not there."""


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """These interfaces do not redirect, and whoever does must not be handed the token."""

    def redirect_request(self, *_):
        return None


OPENER = urllib.request.build_opener(NoRedirects)


def ask(url, body=None, method=None):
    """A JSON object for JSON, with the token of $CHAINMAIL_TOKEN, the metadata server's answer."""
    token = json.loads(os.environ["CHAINMAIL_TOKEN"])["access_token"]
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        url, data=data, method=method, headers={"Authorization": "Bearer " + token, "Content-Type": "application/json"})
    with OPENER.open(request, timeout=SECONDS) as answer:
        found = json.loads(answer.read() or b"{}")
    if not isinstance(found, dict): raise ValueError(f"{url} answers JSON that is no object")
    return found


def say(*words):
    """One line, whatever machines have stored: a second one would be taken for another machine's."""
    print(*(" ".join(word.split()) for word in words))


def described(error):
    if not isinstance(error, urllib.error.HTTPError): return f": {type(error).__name__}: {error}"
    try:
        said = error.read(300).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        said = ""
    return f" answers {error.code} for {error.url}: {said}"


def main(words, what):
    """Runs the function of `words` that the command line names."""
    try:
        words[sys.argv[1]](*sys.argv[2:])
    except NotThere:
        return 1
    # All of them: Python ends with 1 after one that nobody catches, and that would be "not there".
    except Exception as error:  # pylint: disable=broad-exception-caught
        print(" ".join(f"{what}{described(error)}".split()), file=sys.stderr)
        return 2
    return 0
