#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Checks who includes what: headers of libraries, the floors of a part, and that nothing goes round in
circles. usage: includes.py [root]

A file below tests/ is judged as the folder that it mirrors: tests/ops/x_test.cc as ops/x_test.cc;
what tests/soak needs is judged as a tool.
"""

import posixpath
import re
import sys

import tree

# Header, folders that may include it, why. Patterns match from the start; "main" stands for files
# with a main(). The first rule whose header matches decides.
RULES = [
    # Libraries of others.
    (r"mpi\.h", [r"ops/comm/mpi/", r"tools/bench/mpi/", r"tests/launcher/mpi/"],
     "MPI stays behind one transport, in the benchmark's own MPI processes and in users' programs"),
    (r"nccl\.h", [r"ops/comm/nccl/"], "NCCL stays behind one transport"),
    (r"cuda(_runtime|_runtime_api)?\.h",
     [r"ops/kernels/cuda/", r"ops/comm/nccl/", r"ops/device/cuda/", r"ops/device_library/"], "all else builds without CUDA"),
    (r"torch/csrc/distributed/c10d/",
     [r"plugin/c10d/", r"plugin/include/chainmail/backend\.h", r"examples/cpp_ddp/", r"tools/bench/"],
     "c10d changes with every release of torch"),
    (r"torch/torch\.h",
     [r"examples/", r"plugin/(train|nn|data|pch)", r"tests/(plugin|docs)/", r"tools/bench/"],
     "it takes 20 s to compile"),
    (r"(ATen|c10|torch)/", [r"plugin/", r"examples/", r"tools/(bench|info)/", r"tests/starters/",
                            r"packaging/consumer/"],
     "ops, launcher and base are free of torch"),
    (r"glog/", [r"base/log\.cc", "main"], "glog and torch both define LOG and CHECK"),
    (r"gflags/", [r"examples/common/flags\.h", "main"], "flags belong to programs"),
    (r"pmix.*\.h", [r"launcher/pmix/", r"tests/launcher/mpi/pmix_.*"], "one helper links libpmix"),
    (r"asio", [r"launcher/"], "the event loop is the launcher's"),
    (r"hwy/", [r"ops/kernels/cpu/"], "SIMD is compiled per target in the kernels"),
    (r"hwloc", [r"launcher/", r"base/", r"tools/info/"], "binding is the launcher's"),
    (r"(nlohmann|openssl|xxhash)", [r".*\.cc$"], "private to sources"),
    (r"(gtest|gmock)/", [r"tests/"], "tests only"),
    (r"benchmark/", [r"tools/bench/", r"tests/"], "benchmarks only"),
    # Our own, in the order base <- ops <- plugin <- tools, base <- launcher.
    (r"base/", [r"(base|ops|plugin(?!/include)|launcher|tools)/"],
     "public headers and examples see <chainmail/...> only"),
    (r"ops/", [r"(ops|plugin(?!/include)|tools)/"], "base and launcher are below or beside ops"),
    (r"plugin/", [r"(plugin(?!/include)|tools)/"], "only tools are above plugin"),
    (r"launcher/", [r"launcher/"], "the launcher is a program, not a library"),
    (r"chainmail/", [r"(plugin|examples|tools|tests/starters|tests/docs|packaging/consumer)/"], "base, ops and launcher are below the plugin"),
    (r"(tests|examples|tools)/", [r"(tests|examples|tools)/"], "nothing depends on these"),
]

# The floors of a part, bottom to top: a file may include headers of its own floor and of those below,
# never of one above. A floor holds all files below its folder, but for those of floors that lie
# deeper. A part that is listed here may have no circle of headers and none of folders either.
FLOORS = {
    "ops": [
        "ops",  # types, topology, message headers
        "ops/core/failure",
        "ops/core",
        "ops/kernels",
        "ops/device",
        "ops/comm",
        "ops/comm/frames",
        "ops/comm/p2p/schedules",
        "ops/comm/p2p",
        "ops/comm/shm/memory",
        "ops/comm/shm",
        "ops/comm/shm/messages",
        "ops/comm/tcp/stream",
        "ops/comm/tcp",
        "ops/comm/mpi",
        "ops/comm/nccl",
        "ops/algorithms",
        "ops/algorithms/stream",
        "ops/device_library",
        "ops/engine/callbacks",
        "ops/engine/plan",
        "ops/engine/failure",
        "ops/engine/comms",
        "ops/engine/transfers",
        "ops/engine/collectives",
        "ops/engine",
        "ops/engine/device/operation",
        "ops/engine/device/transfers",
        "ops/engine/device",
    ],
    "launcher": [
        "launcher/job",  # what a job is asked to be: values
        "launcher/process", "launcher/files", "launcher/cgroup", "launcher/channel",  # the machine
        "launcher/placement", "launcher/command_line", "launcher/hosts", "launcher/hosts/schedulers",
        "launcher/remote", "launcher/allocation",
        "launcher/mpi", "launcher/pmi1", "launcher/staging", "launcher/mpi/service", "launcher/pmix",
        "launcher/tree", "launcher/output", "launcher/agent",
        "launcher/jobs",  # what a user says to a job that runs
        "launcher/controller/state", "launcher/controller/starting", "launcher/controller/ranks",
        "launcher/controller/elastic/machine", "launcher/controller/elastic/hosts", "launcher/controller/elastic",
        "launcher/controller",
        "launcher/run", "launcher/run/attempts", "launcher/run/job_file",  # jobs, to their end
        "launcher",  # the program
    ],
}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)
MAIN = re.compile(r"^int main\(", re.MULTILINE)


def is_allowed(path, allowed, text):
    mirrored = path.removeprefix("tests/").replace("soak/", "tools/soak/", 1)
    for pattern in allowed:
        if pattern == "main":
            if MAIN.search(text):
                return True
        elif re.match(pattern, path) or re.match(pattern, mirrored):
            return True
    return False


def floor_of(path, floors):
    """The number of the floor that a file is on, -1 for one of no floor."""
    folder = posixpath.dirname(path)
    while folder and folder not in floors:
        folder = posixpath.dirname(folder)
    return floors.index(folder) if folder else -1


def part_of(path):
    part = path.split("/", 1)[0]
    return part if part in FLOORS else None


def circles(graph):
    """Groups of nodes that reach each other; `graph` maps a node to those that it points to."""
    reached = {}
    for start in graph:
        seen, todo = set(), [start]
        while todo:
            for node in graph.get(todo.pop(), ()):
                if node not in seen:
                    seen.add(node)
                    todo.append(node)
        reached[start] = seen
    groups = {frozenset(b for b in reached[a] if a in reached.get(b, ())) for a in graph}
    return sorted(sorted(group) for group in groups if group)


def check_floors(includes):
    """`includes`: of all files (path, line, header)."""
    problems, headers, folders = [], {}, {}
    for path, line, header in includes:
        part = part_of(path)
        if part is None or part_of(header) != part:
            continue
        floors = FLOORS[part]
        here, there = floor_of(path, floors), floor_of(header, floors)
        folder = posixpath.dirname(path)
        if here == len(floors) - 1 and folder != floors[here]:
            problems.append(f"{path}:{line}: may not include {header}: {folder} has no "
                            "place in FLOORS")
        elif there > here:
            problems.append(f"{path}:{line}: may not include {header}: {floors[there]} is a floor "
                            f"above {floors[here]}")
        if path.endswith(".h"):
            headers.setdefault(path, set()).add(header)
        other = posixpath.dirname(header)
        if folder != other:
            folders.setdefault(folder, set()).add(other)
    for graph, what in ((headers, "headers"), (folders, "folders")):
        for group in circles(graph):
            problems.append(f"{group[0]}:1: {what} that include each other: {' '.join(group)}")
    return problems


def check(root):
    problems = []
    ours = []
    for path in tree.files(root):
        if not path.endswith(tree.CODE):
            continue
        text = tree.read(root, path)
        for match in INCLUDE.finditer(text):
            header = match.group(1)
            ours.append((path, text.count("\n", 0, match.start()) + 1, header))
            for pattern, allowed, reason in RULES:
                if not re.match(pattern, header):
                    continue
                if not is_allowed(path, allowed, text):
                    line = text.count("\n", 0, match.start()) + 1
                    problems.append(f"{path}:{line}: may not include {header}: {reason}; "
                                    f"allowed in {' '.join(allowed)}")
                break
    return problems + check_floors(ours)


if __name__ == "__main__":
    sys.exit(tree.report(check(sys.argv[1] if len(sys.argv) > 1 else ".")))
