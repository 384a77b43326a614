# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""A port for torch's store, for tests that start ranks without a launcher."""

import random
import socket


def free_port():
    """Not one that the kernel would give to somebody else before rank 0 has it (from 32768 on), and none of
    Chainmail's own (from 20000 on)."""
    while True:
        port = random.randrange(10000, 20000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


if __name__ == "__main__":
    print(free_port())
