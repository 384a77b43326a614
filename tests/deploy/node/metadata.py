# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Metadata servers as clouds have them, one in the network of each machine, at 169.254.169.254."""

import http.server
import json
import threading
import time

from cluster import METADATA, listen_in


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, machine, handler):
        self.socket_made = listen_in(machine.pid, METADATA)
        super().__init__(METADATA, handler, bind_and_activate=False)
        self.socket.close()
        self.socket = self.socket_made
        self.server_name, self.server_port = METADATA
        self.delay = 0.0
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def end(self):
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def reply(self, code, text):
        body = text.encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Imds(Server):
    """AWS's, version 2 alone: without a token there is nothing. `paths`: what there is below /latest."""

    role = "node"

    def __init__(self, machine, instance):
        super().__init__(machine, ImdsHandler)
        self.refused = 0
        self.paths = {
            "meta-data/instance-id": instance,
            "meta-data/local-ipv4": machine.address,
            "meta-data/placement/region": "eu-central-1",
            "meta-data/placement/availability-zone": "eu-central-1a",
            "meta-data/iam/security-credentials/": self.role,
            f"meta-data/iam/security-credentials/{self.role}": json.dumps({
                "Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": "AKIDNODE", "SecretAccessKey": "none",
                "Token": "none", "LastUpdated": "2026-01-01T00:00:00Z", "Expiration": "2099-01-01T00:00:00Z"}),
        }
        self.tokens = set()
        self.made = 0
        self.asked = []  # paths, in order
        self.token_text = "token-{}"

    def expire(self):
        self.tokens = set()

    def interrupt(self):
        self.paths["meta-data/spot/instance-action"] = json.dumps(
            {"action": "terminate", "time": "2026-01-01T00:02:00Z"})

    def recommend_rebalance(self):
        self.paths["meta-data/events/recommendations/rebalance"] = json.dumps({"noticeTime": "2026-01-01T00:00:00Z"})


class ImdsHandler(Handler):
    def do_PUT(self):
        time.sleep(self.server.delay)
        seconds = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
        if self.path != "/latest/api/token" or not seconds.isdigit() or not 1 <= int(seconds) <= 21600:
            return self.reply(400, "bad request")
        self.server.made += 1
        token = self.server.token_text.format(self.server.made)
        self.server.tokens.add(token)
        return self.reply(200, token)

    def do_GET(self):
        time.sleep(self.server.delay)
        if self.headers.get("X-aws-ec2-metadata-token") not in self.server.tokens:
            self.server.refused += 1
            return self.reply(401, "unauthorized")
        self.server.asked.append(self.path.removeprefix("/latest/"))
        text = self.server.paths.get(self.server.asked[-1])
        return self.reply(404, "not found") if text is None else self.reply(200, text)
