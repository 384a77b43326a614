#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Reads TensorBoard event files without TensorBoard and compares them with a log.

usage: read_events.py FOLDER LOG: every value of every entry of LOG (a JSON list) must be in the
only event file in FOLDER, at the entry's iteration, and nothing else.
"""

import glob
import json
import math
import os
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    at = 0
    while at < len(data):
        length, length_crc = struct.unpack_from("<QI", data, at)
        assert length_crc == masked(data[at:at + 8]), f"checksum of the length at {at}"
        record = data[at + 12:at + 12 + length]
        assert len(record) == length, f"record at {at} is cut off"
        assert struct.unpack_from("<I", data, at + 12 + length)[0] == masked(record), \
            f"checksum of the record at {at}"
        yield record
        at += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """(number, value) of each member of a protocol buffer."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif key & 7 == 5:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        else:
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
        yield key >> 3, value


def scalars(path):
    result = {}
    with open(path, "rb") as file:
        events = [list(fields(record)) for record in records(file.read())]
    assert (3, b"brain.Event:2") in events[0], "the first event is not the version"
    for event in events:
        assert dict(event)[1] > 1.6e9, "no wall time"
    for event in events[1:]:
        step = dict(event)[2]
        for number, value in fields(dict(event)[5]):
            assert number == 1
            members = dict(fields(value))
            result[step, members[1].decode()] = members[2]
    return result


def main(folder, log):
    paths = glob.glob(os.path.join(folder, "events.out.tfevents.*"))
    assert len(paths) == 1, f"{len(paths)} event files in {folder}"
    found = scalars(paths[0])
    with open(log) as file:
        entries = json.load(file)
    expected = {(entry["iteration"], name): value for entry in entries
                for name, value in entry.items()
                if name not in ("epoch", "iteration", "elapsed_time")}
    assert found.keys() == expected.keys(), sorted(found.keys() ^ expected.keys())
    for key, value in expected.items():
        assert math.isclose(found[key], value, rel_tol=1e-6, abs_tol=1e-30), (key, value, found[key])
    print(f"{len(found)} scalars in {paths[0]} are those of {log}")


if __name__ == "__main__":
    main(*sys.argv[1:])
