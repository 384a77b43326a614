# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""A machine that has just been started, for what user data do to it: namespaces of its own for mounts and network, folders
of the system that forget what is written, a metadata service that wants tokens, an https server with packages, and
stand-ins for apt-get, mount and aws that write down how they were called.
Tests call start(); what runs in the namespaces is this file. usage: machine.py FOLDER"""

import http.server
import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
import unittest

METADATA = "169.254.169.254"
INSTANCE = "i-0123456789abcdef0"
HOSTS = ("packages.example.org", "s3.eu-central-1.amazonaws.com")
FORGETFUL = ("/etc", "/usr/share", "/usr/local/bin", "/srv", "/opt")
LIMIT_S = 100

# The package that it installs is one, and so is what mount mounts.
STAND_INS = {
    "apt-get": """
case " $* " in
  *" update ") [ "$(grep -c '^apt-get .* update$' "$FOLDER/calls")" -gt "$FAILING_UPDATES" ] || exit 100 ;;
esac
for word; do
  case $word in
    "$REFUSED_PACKAGE") exit 100 ;;
    awscli) cp "$FOLDER/aws" "$FOLDER/bin/aws" ;;
    *.deb) dpkg-deb -x "$word" / ;;
  esac
done
""",
    "mount": """
[ "$(grep -c '^mount ' "$FOLDER/calls")" -gt "$FAILING_MOUNTS" ] || exit 32
exec /bin/mount -t tmpfs none "$1"
""",
    "sleep": "",
}


# What start() may be given. `command` is run `runs` times; `files` are there before, {path: file in the folder}; of
# `texts` and `folders` the result has what is in them afterwards.
DEFAULTS = {"command": None, "runs": 1, "files": {}, "texts": [], "folders": [], "metadata": 200, "failing_mounts": 0, "failing_updates": 0,
            "refused_package": "none"}


def why_not():
    """Why there are no machines here; empty: there are."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "--net", "true"], capture_output=True).returncode != 0:
        return "it makes namespaces for mounts and network, which needs root"
    missing = [tool for tool in ("curl", "dpkg-deb", "ip", "openssl") if shutil.which(tool) is None]
    return "missing here: " + " ".join(missing) if missing else ""


def run_tests():
    """Of a test that makes machines."""
    reason = why_not()
    if reason:
        print("skipped: " + reason)
        sys.exit(77)
    unittest.main()


def make_certificate(folder):
    """key.pem and certificate.pem, of which the machine believes that they are those of HOSTS."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-keyout", folder + "/key.pem", "-out", folder + "/certificate.pem", "-days", "2", "-subj", "/CN=test",
                    "-addext", "subjectAltName=" + ",".join(f"DNS:{name}" for name in HOSTS)],
                   check=True, capture_output=True)


def start(folder, certificates, **options):
    """Runs options["command"]; what came of it. What is downloaded is in folder/serve, below the path of its address."""
    for name in ("layers", "scratch"):
        os.mkdir(os.path.join(folder, name))
    for name in ("key.pem", "certificate.pem"):
        shutil.copy(os.path.join(certificates, name), folder)
    with open(folder + "/options.json", "w", encoding="utf-8") as file:
        json.dump({**DEFAULTS, **options}, file)
    done = subprocess.run(["unshare", "--mount", "--net", "--propagation", "private", "--", sys.executable, "-B",
                           os.path.abspath(__file__), folder], capture_output=True, text=True, timeout=LIMIT_S * 3)
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    with open(folder + "/result.json", encoding="utf-8") as file:
        return json.load(file)


def write_stand_in(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\necho "{os.path.basename(path)} $*" >>"$FOLDER/calls"\n{text}')
    os.chmod(path, 0o755)


class Metadata(http.server.BaseHTTPRequestHandler):
    answers = 200

    def reply(self, code, text=""):
        self.send_response(code)
        self.end_headers()
        self.wfile.write(text.encode())

    def do_PUT(self):
        is_sound = self.path == "/latest/api/token" and self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
        self.reply(self.answers if is_sound else 400, "the-token")

    def do_GET(self):
        if self.headers["X-aws-ec2-metadata-token"] != "the-token":
            self.reply(401)
        elif self.path == "/latest/meta-data/instance-id":
            self.reply(200, INSTANCE)
        else:
            self.reply(404)

    def log_message(self, *_):
        pass


class Packages(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.path.startswith("/moved/"):
            self.send_response(302)
            self.send_header("Location", f"http://{HOSTS[0]}/" + self.path.removeprefix("/moved/"))
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *_):
        pass


def serve(address, handler, context=None):
    server = http.server.ThreadingHTTPServer(address, handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def set_up(folder, options):
    for command in (["ip", "link", "set", "lo", "up"], ["ip", "address", "add", METADATA + "/32", "dev", "lo"],
                    ["mount", "-t", "tmpfs", "none", folder + "/layers"]):
        subprocess.run(command, check=True)
    for index, path in enumerate(FORGETFUL):
        upper, work = (f"{folder}/layers/{name}{index}" for name in ("upper", "work"))
        os.mkdir(upper)
        os.mkdir(work)
        subprocess.run(["mount", "-t", "overlay", "none", "-o", f"lowerdir={path},upperdir={upper},workdir={work}", path],
                       check=True)
    with open("/etc/hosts", "a", encoding="utf-8") as file:
        file.write(f"127.0.0.1 {' '.join(HOSTS)}\n")
    for path in options["files"]:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        subprocess.run(["cp", os.path.join(folder, options["files"][path]), path], check=True)
    os.mkdir(folder + "/bin")
    for name, text in STAND_INS.items():
        write_stand_in(f"{folder}/bin/{name}", text)
    write_stand_in(folder + "/aws", "")
    open(folder + "/calls", "w", encoding="utf-8").close()

    Metadata.answers = options["metadata"]
    serve((METADATA, 80), Metadata)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder + "/certificate.pem", folder + "/key.pem")
    os.chdir(folder + "/serve")
    serve(("127.0.0.1", 443), Packages, context)
    serve(("127.0.0.1", 80), Packages)


def text_of(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def main(folder):
    with open(folder + "/options.json", encoding="utf-8") as file:
        options = json.load(file)
    set_up(folder, options)
    environment = {"PATH": f"{folder}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "FOLDER": folder, "TMPDIR": folder + "/scratch",
                   "CURL_CA_BUNDLE": folder + "/certificate.pem", "FAILING_MOUNTS": str(options["failing_mounts"]),
                   "FAILING_UPDATES": str(options["failing_updates"]), "REFUSED_PACKAGE": options["refused_package"]}
    runs = [subprocess.run(options["command"], env=environment, capture_output=True, text=True, timeout=LIMIT_S,
                           stdin=subprocess.DEVNULL) for _ in range(options["runs"])]
    result = {"code": runs[-1].returncode, "text": "".join(run.stdout + run.stderr for run in runs),
              "calls": text_of(folder + "/calls").splitlines(), "left": os.listdir(folder + "/scratch"),
              "texts": {path: text_of(path) for path in options["texts"]},
              "folders": {path: sorted(os.listdir(path)) for path in options["folders"]},
              "mounts": [line.split()[1] for line in text_of("/proc/mounts").splitlines()]}
    with open(folder + "/result.json", "w", encoding="utf-8") as file:
        json.dump(result, file)



if __name__ == "__main__":
    main(sys.argv[1])
