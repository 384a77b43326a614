# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Trees of agents over stand-ins for hosts; see tree.sh.

The remote shell is a script that runs the command on this machine, with TREE_HOST set to the host's
name, so that a rank can say where it is, and the script where it was called.
"""

import os
import random
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

# Before this folder, which has another patience.py.
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../support"))

from patience import patient  # noqa: E402

LAUNCHER = os.environ["LAUNCHER"]
PROBE = os.environ["PROBE"]
SHORT = os.environ.get("SHORT") == "yes"

SHELL = r"""#!/bin/sh
# HOST COMMAND...: without exec, so that something stands between launcher and agent.
host=$1
shift
if [ -n "$TREE_DELAY" ]; then
  # From one machine so many logins at a time, as if it had the processors for no more.
  flock "$TREE_SLOTS/${TREE_HOST:-head}.$((${host#h} % TREE_LOGINS))" sleep "$TREE_DELAY"
fi
case " $TREE_CLOSED " in
*" $host "*) closed=yes ;;
*" $host:behind "*) [ -n "$TREE_HOST" ] && closed=yes ;;
esac
if [ -n "$closed" ]; then
  echo "bob@$host: Permission denied (publickey)." >&2
  exit 255
fi
if [ -n "$TREE_BUSY" ] && mkdir "$TREE_BUSY/$host" 2>/dev/null; then
  echo "kex_exchange_identification: read: Connection reset by peer" >&2
  exit 255
fi
TREE_HOST=$host "$@"
"""

failures = 0


def fail(name, text):
    global failures
    failures += 1
    print(f"FAILED {name}: {text}")


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def stat_of(pid):
    """State, parent and start time."""
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (fields[0], int(fields[1]), fields[19]) if len(fields) > 19 else ("X", -1, "")


def descendants(pid):
    """{pid: start time} of a process and all below it."""
    children = {}
    start = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            state, parent, started = stat_of(name)
            if state not in "ZX":
                children.setdefault(parent, []).append(int(name))
                start[int(name)] = started
    found, todo = {}, [pid]
    while todo:
        one = todo.pop()
        if one in start:
            found[one] = start[one]
        todo += children.get(one, [])
    return found


class Tree:
    """One launcher over `hosts` stand-ins, one rank each; `width` as --tree takes it."""

    def __init__(self, work, hosts, width, program, variables=(), before=None):
        self.folder = tempfile.mkdtemp(prefix="tree.", dir=work)
        with open(f"{self.folder}/hosts", "w", encoding="utf-8") as file:
            file.writelines(f"h{i} slots=1\n" for i in range(hosts))
        self.hosts = hosts
        self.width = width
        self.out = open(f"{self.folder}/out", "wb")
        self.err = open(f"{self.folder}/err", "wb")
        command = [LAUNCHER, "-H", f"{self.folder}/hosts", "--rsh", f"{work}/shell"]
        command += ["--tree", str(width), *program]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self.out,
            stderr=self.err,
            cwd=self.folder,
            env=dict(os.environ, TREE_FOLDER=self.folder, **dict(variables)),
            start_new_session=True,
            preexec_fn=before,
        )
        self.known = {}

    def parent(self, host):
        return None if host < self.width else (host - self.width) // self.width

    def children(self, host):
        return [other for other in range(self.hosts) if self.parent(other) == host]

    def wait_until_running(self):
        limit = time.time() + 60
        while time.time() < limit and self.process.poll() is None:
            if all(read(f"{self.folder}/rank.{rank}").strip() for rank in range(self.hosts)):
                self.known = descendants(self.process.pid)
                return True
            time.sleep(0.02)
        return False

    def rank(self, host):
        return int(read(f"{self.folder}/rank.{host}"))

    def agent(self, host):
        return stat_of(self.rank(host))[1]

    def reaper(self, host):
        return stat_of(self.agent(host))[1]

    def supervisor(self, host):
        return stat_of(self.reaper(host))[1]

    def shell(self, host):
        return stat_of(self.supervisor(host))[1]

    def messages(self):
        return read(f"{self.folder}/err")

    def output(self):
        return read(f"{self.folder}/out")

    def wait(self, seconds):
        """The exit code; None when it still runs."""
        try:
            return self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None

    def left(self):
        return [pid for pid, started in self.known.items() if stat_of(pid)[2] == started
                and stat_of(pid)[0] not in "ZX"]

    def end(self, name, gone_within=2.0):
        """After the launcher's end: nothing may be left."""
        limit = time.time() + patient(gone_within)
        while self.left() and time.time() < limit:
            time.sleep(0.02)
        if self.left():
            lines = [f"{pid} {read(f'/proc/{pid}/cmdline')!r}" for pid in self.left()]
            fail(name, f"left behind after {gone_within} s: {lines}")
        for pid in [*self.left(), *descendants(self.process.pid)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        self.out.close()
        self.err.close()


SLEEP = ["sh", "-c", "echo $$ > $TREE_FOLDER/rank.$RANK; exec sleep 100"]


def check_order(work, hosts, width):
    """Ranks, hosts and environment, then the store between all of them."""
    tree = Tree(work, hosts, width, ["sh", "-c", "echo $RANK $TREE_HOST $WORLD_SIZE $NODE_RANK"])
    code = tree.wait(60)
    wanted = sorted(f"{i} h{i} {hosts} {i}" for i in range(hosts))
    if code != 0 or sorted(tree.output().splitlines()) != wanted or tree.messages():
        fail("order", f"code {code}: {tree.output()[:400]} {tree.messages()}")
    tree.end("order")
    tree = Tree(work, hosts, width, [PROBE, "store"])
    code = tree.wait(60)
    if code != 0 or len(set(tree.output().splitlines())) != 1:
        fail("store", f"code {code}: {tree.messages()}")
    tree.end("store")


def broken(name, tree, victim, number, code, pattern, seconds, gone_within=2.0):
    """A running job, a signal to victim(tree), and how it has to end."""
    if not tree.wait_until_running():
        fail(name, f"did not start: {tree.messages()}")
        return tree.end(name)
    at = time.time()
    os.kill(victim(tree), number)
    got = tree.wait(patient(seconds) + 5)
    took = time.time() - at
    text = tree.messages()
    if got != code or (pattern and not re.search(pattern, text)):
        fail(name, f"code {got}, wanted {code} and '{pattern}': {text}")
    if took > patient(seconds):
        fail(name, f"it took {took:.2f} s, wanted {seconds}")
    if len(re.findall(r"^launcher: (?:lost host|rank \d+ on)", text, re.M)) > 1:
        fail(name, f"more than one cause: {text}")
    tree.end(name, gone_within)
    return took


def check_kills(work, hosts, width):
    """kill -9 of every kind of process there is in a tree."""
    relay = random.randrange(width)
    while True:
        leaf = random.randrange(width, hosts)
        if not Tree.children(_Shape(hosts, width), leaf):
            break
    children = Tree.children(_Shape(hosts, width), relay)
    through = ".*h" + str(children[0]) + r"\b.*through it" if children else ""
    lost_relay = rf"launcher: lost host h{relay}: {through}"
    lost_leaf = rf"launcher: lost host h{leaf}: "
    nine = signal.SIGKILL
    cases = [
        ("kill leaf's rank", lambda t: t.rank(leaf), nine, 137,
         rf"rank {leaf} on host h{leaf} was killed by signal 9"),
        ("kill leaf's agent", lambda t: t.agent(leaf), nine, 125, lost_leaf),
        ("kill leaf's reaper", lambda t: t.reaper(leaf), nine, 125, lost_leaf),
        ("kill leaf's supervisor", lambda t: t.supervisor(leaf), nine, 125, lost_leaf),
        ("kill leaf's shell", lambda t: t.shell(leaf), nine, 125, lost_leaf),
        ("kill relay's agent", lambda t: t.agent(relay), nine, 125, lost_relay),
        ("kill relay's reaper", lambda t: t.reaper(relay), nine, 125, lost_relay),
        ("kill relay's supervisor", lambda t: t.supervisor(relay), nine, 125, lost_relay),
        ("kill relay's shell", lambda t: t.shell(relay), nine, 125, lost_relay),
        ("terminate relay's agent", lambda t: t.agent(relay), signal.SIGTERM, 143,
         rf"SIGTERM to the agent on host h{relay}: ending the job"),
        ("kill launcher", lambda t: t.process.pid, nine, -9, ""),
        ("terminate launcher", lambda t: t.process.pid, signal.SIGTERM, 143, "SIGTERM"),
    ]
    if SHORT:
        cases = [case for case in cases if case[0] in
                 ("kill leaf's agent", "kill relay's agent", "kill relay's shell", "kill launcher")]
    for name, victim, number, code, pattern in cases:
        broken(name, Tree(work, hosts, width, SLEEP), victim, number, code, pattern, 4)


class _Shape:
    """What Tree.children needs, without a job."""

    def __init__(self, hosts, width):
        self.hosts, self.width = hosts, width

    parent = Tree.parent


def check_stops(work, hosts, width):
    """A relay that stands still for a moment harms nobody; for longer, it is named."""
    tree = Tree(work, hosts, width, SLEEP)
    if tree.wait_until_running():
        agent = tree.agent(0)
        for _ in range(2):
            os.kill(agent, signal.SIGSTOP)
            time.sleep(2.5)
            os.kill(agent, signal.SIGCONT)
            time.sleep(1.5)
        if tree.process.poll() is not None:
            fail("short stop", tree.messages())
        tree.process.terminate()
        tree.wait(10)
    else:
        fail("short stop", f"did not start: {tree.messages()}")
    tree.end("short stop")
    broken("long stop", Tree(work, hosts, width, SLEEP), lambda t: t.agent(0), signal.SIGSTOP, 125,
           r"launcher: lost host h0: .*h\d+.* through it", 16, 9)


def check_doors(work, hosts, width):
    """Hosts that others cannot reach, that nobody can reach, and that refuse the first login."""
    closed = f"h{hosts - 1}:behind h{width}:behind"
    tree = Tree(work, hosts, width, ["sh", "-c", "echo $TREE_HOST"], {"TREE_CLOSED": closed})
    code = tree.wait(60)
    if code != 0 or len(tree.output().split()) != hosts:
        fail("detour", f"code {code}: {tree.output()} {tree.messages()}")
    if not re.fullmatch(r"launcher: host h\d+ cannot be reached from host h\d+ \(bob@h\d+: Permission "
                        r"denied \(publickey\).\); it is started from here.*--tree no.*\n",
                        tree.messages()):
        fail("detour", tree.messages())
    tree.end("detour")
    tree = Tree(work, hosts, width, ["true"], {"TREE_CLOSED": f"h{hosts - 1}"})
    code = tree.wait(60)
    if code != 125 or f"permission denied on host h{hosts - 1}" not in tree.messages():
        fail("closed", f"code {code}: {tree.messages()}")
    tree.end("closed")
    busy = tempfile.mkdtemp(dir=work)
    tree = Tree(work, hosts, width, ["true"], {"TREE_BUSY": busy})
    code = tree.wait(60)
    if code != 0 or tree.messages():
        fail("busy", f"code {code}: {tree.messages()}")
    tree.end("busy")


def check_auto(work):
    """Above 64 hosts and with something called ssh, a tree by itself: who started whose agent."""
    os.makedirs(f"{work}/auto", exist_ok=True)
    with open(f"{work}/auto/ssh", "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift\n"
                   "host=$1\nshift\nTREE_FROM=$TREE_HOST TREE_HOST=$host exec \"$@\"\n")
    os.chmod(f"{work}/auto/ssh", 0o755)
    path = {"PATH": f"{work}/auto:{os.environ['PATH']}"}
    for hosts, width in ((64, 0), (66, 8)):
        with open(f"{work}/auto/hosts", "w", encoding="utf-8") as file:
            file.writelines(f"h{i}\n" for i in range(hosts))
        job = subprocess.run(
            [LAUNCHER, "-H", f"{work}/auto/hosts", "sh", "-c", "echo $TREE_HOST ${TREE_FROM:-head}"],
            env=dict(os.environ, **path), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=120)
        wanted = sorted(f"h{i} " + (f"h{(i - width) // width}" if 0 < width <= i else "head")
                        for i in range(hosts))
        if job.returncode != 0 or sorted(job.stdout.splitlines()) != wanted or job.stderr:
            fail("auto", f"code {job.returncode}: {job.stdout[:400]} {job.stderr}")


def check_descriptors(work, hosts):
    """A star that needs more open files than the soft limit allows; ranks have the user's limit."""
    limit = 128
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    tree = Tree(work, hosts, "no", ["sh", "-c", "ulimit -Sn"], before=lambda: resource.setrlimit(
        resource.RLIMIT_NOFILE, (limit, hard)))
    code = tree.wait(60)
    if code != 0 or tree.output().split() != [str(limit)] * hosts:
        fail("descriptors", f"code {code}: {tree.output()[:200]} {tree.messages()}")
    tree.end("descriptors")
    tree = Tree(work, hosts, "no", ["true"], before=lambda: resource.setrlimit(
        resource.RLIMIT_NOFILE, (limit, limit)))
    code = tree.wait(60)
    if code != 125 or "raise the limit (ulimit -n)" not in tree.messages():
        fail("hard limit", f"code {code}: {tree.messages()}")
    tree.end("hard limit")


def check_output(work, hosts, width, mib):
    """Much output of every rank: nothing lost or torn, and a small launcher."""
    script = (
        f"head -c {mib << 20} /dev/zero | tr '\\0' x | fold -w 999 | sed s/^/$RANK./; "
        "[ $RANK != 0 ] || grep -q x /dev/null; exit 0"
    )
    tree = Tree(work, hosts, width, ["sh", "-c", script])
    peak = 0
    while tree.process.poll() is None:
        found = re.search(r"VmHWM:\s+(\d+)", read(f"/proc/{tree.process.pid}/status"))
        peak = max(peak, int(found.group(1)) if found else 0)
        time.sleep(0.05)
    counts = {}
    for line in tree.output().split("\n"):
        rank, dot, rest = line.partition(".")
        if dot and rest.strip("x"):
            fail("output", f"a torn line: {line[:80]}")
            break
        counts[rank] = counts.get(rank, 0) + len(rest)
    counts.pop("", None)
    if tree.process.returncode != 0 or counts != {str(r): mib << 20 for r in range(hosts)}:
        fail("output", f"code {tree.process.returncode}: {counts} {tree.messages()}")
    # Sanitizers take memory, too.
    if peak > (64 << 10) * float(os.environ.get("CHAINMAIL_TEST_PATIENCE", "1")):
        fail("output", f"the launcher had {peak >> 10} MiB")
    tree.end("output")
    return peak


def check_moments(work, hosts, width, count):
    """A signal to launcher, or kill -9 to something below it, at any moment of the start."""
    for _ in range(count):
        tree = Tree(work, hosts, width, SLEEP)
        time.sleep(random.uniform(0, 0.6))
        tree.known = descendants(tree.process.pid)
        below = [pid for pid in tree.known if pid != tree.process.pid]
        if below and random.random() < 0.5:
            victim, number = random.choice(below), signal.SIGKILL
        else:
            victim = tree.process.pid
            number = random.choice([signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
        try:
            os.kill(victim, number)
        except ProcessLookupError:
            pass
        code = tree.wait(patient(8))
        if code is None and victim != tree.process.pid and tree.wait_until_running():
            # Some command of the start-up that another way was found without.
            tree.process.terminate()
            code = tree.wait(patient(8))
        if code is None or code == 0:
            fail("moment", f"code {code} after {number} to {victim}: {tree.messages()}")
        # What had been forked while the list was made is found by its environment.
        limit = time.time() + patient(3)
        while time.time() < limit and marked(tree.folder):
            time.sleep(0.02)
        if marked(tree.folder):
            fail("moment", f"ranks are left: {marked(tree.folder)}")
        tree.end("moment")


def marked(folder):
    mark = f"TREE_FOLDER={folder}"
    return [pid for pid in os.listdir("/proc") if pid.isdigit() and stat_of(pid)[0] not in "ZX"
            and mark in read(f"/proc/{pid}/environ").split("\0")]


def time_starts(work, hosts, rounds=5):
    """Star and tree in turn, with 0.3 s per login and 10 logins at a time from each machine."""
    width = next(w for w in range(1, 33) if w == 32 or w * (w + 1) >= hosts)
    for delay, logins in (("", 0), ("0.3", 10), ("0.3", 1000)):
        took = {"no": [], width: []}
        for _ in range(rounds):
            for tree, times in took.items():
                slots = tempfile.mkdtemp(dir=work)
                variables = {"TREE_SLOTS": slots, "TREE_LOGINS": str(logins)}
                if delay:
                    variables["TREE_DELAY"] = delay
                started = time.time()
                job = Tree(work, hosts, tree, ["true"], variables)
                code = job.wait(300)
                times.append(time.time() - started)
                if code != 0:
                    fail("time", f"--tree {tree}: code {code}: {job.messages()}")
                job.end("time")
        star, tree = (statistics.median(times) for times in took.values())
        what = f"{delay} s per login, {logins} at a time" if delay else "no delay"
        print(f"{hosts} hosts, {what}: star {star:.2f} s, tree of width {width} {tree:.2f} s")


def check_folders(temporary):
    """Jobs take their folders along, also those that were killed."""
    limit = time.time() + 3
    while os.listdir(temporary) and time.time() < limit:
        time.sleep(0.05)
    if os.listdir(temporary):
        fail("folders", f"left behind: {sorted(os.listdir(temporary))}")


def main():
    work = tempfile.mkdtemp(prefix="chainmail-tree.")
    os.chmod(work, 0o755)
    try:
        with open(f"{work}/shell", "w", encoding="utf-8") as file:
            file.write(SHELL)
        os.chmod(f"{work}/shell", 0o755)
        if sys.argv[1] == "--time":
            time_starts(work, int(sys.argv[2]))
            return 1 if failures else 0
        os.mkdir(f"{work}/tmp")
        os.environ["TMPDIR"] = f"{work}/tmp"
        rounds, hosts, width = (int(word) for word in sys.argv[1:4])
        for turn in range(rounds):
            before = failures
            started = time.time()
            check_order(work, hosts, width)
            if width != 2:
                check_order(work, hosts, 2)
            check_kills(work, hosts, width)
            check_doors(work, hosts, width)
            peak = check_output(work, min(hosts, 6 if SHORT else hosts), 2, 1 if SHORT else 8)
            check_moments(work, hosts, width, 2 if SHORT else 20)
            if not SHORT:
                check_stops(work, hosts, width)
                check_descriptors(work, max(hosts, 50))
                check_auto(work)
            check_folders(f"{work}/tmp")
            print(f"round {turn + 1}: {hosts} hosts, width {width}: {failures - before} failures, "
                  f"launcher {peak >> 10} MiB at most, {time.time() - started:.1f} s", flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 1 if failures else 0


sys.exit(main())
