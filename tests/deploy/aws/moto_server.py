# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""moto's server in a process of its own, and what clients need to reach it."""

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import boto3

REGION = "eu-central-1"
PATIENCE_S = 30
# As moto prints it: its log, and Python's warnings.
WARNING = re.compile(r"^(No Moto CloudFormation support for .*|.*Warning: .*|.*not yet been implemented.*)$", re.MULTILINE)
# Nothing of the machine's own set-up may lead to a real account.
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_SESSION_TOKEN": "testing",
    "AWS_DEFAULT_REGION": REGION, "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true", "AWS_PAGER": "", "PYTHONWARNINGS": "always::UserWarning", "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1",
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class MotoServer:
    """A context: the server runs inside it."""

    def __enter__(self):
        self.log = tempfile.TemporaryFile("w+")
        self.read = 0
        for attempt in range(3):  # somebody else may take the port first
            self.url = f"http://127.0.0.1:{free_port()}"
            self.process = subprocess.Popen(
                [sys.executable, "-B", os.path.join(os.path.dirname(__file__), "moto_process.py"), "-H", "127.0.0.1",
                 "-p", self.url.rpartition(":")[2]], stdout=self.log, stderr=subprocess.STDOUT, env={**os.environ, **ENVIRONMENT})
            if self._answers():
                self.environment = {**os.environ, **ENVIRONMENT, "AWS_ENDPOINT_URL": self.url}
                return self
            self._end()
        raise RuntimeError("moto's server does not answer: " + self.text())

    def __exit__(self, *_):
        self._end()
        self.log.close()

    def _answers(self):
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end and self.process.poll() is None:
            try:
                urllib.request.urlopen(self.url + "/moto-api/", timeout=5).close()
                return True
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        return False

    def _end(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def forget(self):
        """As after the start."""
        urllib.request.urlopen(urllib.request.Request(self.url + "/moto-api/reset", method="POST"), timeout=30).close()
        self.read = len(self.all_text())

    def all_text(self):
        self.log.seek(0)
        return self.log.read()

    def text(self):
        return self.all_text()[self.read:]

    def warnings(self):
        return sorted(set(WARNING.findall(self.text())))

    def client(self, service):
        return boto3.client(service, endpoint_url=self.url, region_name=REGION, aws_access_key_id="testing",
                            aws_secret_access_key="testing")

    def aws(self, *words):
        """The command-line tool, as people type it."""
        return subprocess.run([os.path.join(os.path.dirname(sys.executable), "aws"), *words], env=self.environment,
                              capture_output=True, text=True, timeout=120)
