# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""A store written in Python, for tests."""

import torch.distributed as dist


class Forwarding(dist.Store):
    """To another store. The names are those that torch calls."""

    def __init__(self, store):
        super().__init__()
        self.store = store
        self.calls = 0

    def __getattribute__(self, name):
        if name in ("set", "get", "add", "check", "wait", "deleteKey"):
            self.calls += 1
        return super().__getattribute__(name)

    def set(self, key, value):
        self.store.set(key, value)

    def get(self, key):
        return self.store.get(key)

    def add(self, key, amount):
        return self.store.add(key, amount)

    def check(self, keys):
        return self.store.check(keys)

    def wait(self, *keys_and_timeout):
        self.store.wait(*keys_and_timeout)

    def deleteKey(self, key):
        return self.store.delete_key(key)

    def clone(self):
        return Forwarding(self.store)
