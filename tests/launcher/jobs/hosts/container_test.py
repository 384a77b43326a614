#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Jobs in containers of a real podman, with an image that is made of this machine's own files.

usage: container_test.py LAUNCHER JOB_PROBE PROBE_RANK [CASE...]
       KILLS=20 ... launchers_that_are_killed_leave_nothing

Needs root and podman; 77 and the reason without them.
"""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../faults"))

from outside import Arguments, Job, command_of, main, patient, wait_until  # noqa: E402

COMMANDS = ("sh id uname ls cat grep readlink head mktemp cksum chmod rm tr sed cut tail df sleep echo env "
            "true touch wc mkdir ln").split()
SHELL = '#!/bin/sh\nshift\nexec "$@"\n'
LEASE = 2.5

# What this machine may forbid its containers is none of the launcher's business.
SETTINGS = """[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
cgroups = "disabled"
"""


def podman(*words, **how):
    return subprocess.run(["podman", *map(str, words)], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=patient(60), **how)


def libraries_of(program):
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return re.findall(r"(/\S+) \(0x", listed)


class Image:
    """A root folder with these commands and what they and the launcher are loaded by."""

    def __init__(self, folder, programs_outside, commands):
        self.root = folder
        programs = [os.path.realpath(shutil.which(command)) for command in commands]
        for path in programs:
            self.add(path, path)
        for command, path in zip(commands, programs):
            link = self.root / "usr/bin" / command
            if not link.exists():
                link.symlink_to(path)
        for path in {path for program in [*programs, *programs_outside] for path in libraries_of(program)}:
            self.add(path, path)
        for name in ("proc", "sys", "dev", "etc", "root"):
            (self.root / name).mkdir(exist_ok=True)
        (self.root / "tmp").mkdir(exist_ok=True)
        (self.root / "etc/image").write_text("of the test\n")

    def add(self, path, place):
        # Debian's /bin and /lib are links into /usr.
        place = re.sub(r"^/(bin|sbin|lib|lib64)/", r"/usr/\1/", place)
        for name in ("bin", "sbin", "lib", "lib64"):
            (self.root / "usr" / name).mkdir(parents=True, exist_ok=True)
            if not (self.root / name).is_symlink():
                (self.root / name).symlink_to(f"usr/{name}")
        target = self.root / place[1:]
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            shutil.copy(os.path.realpath(path), target)


def load(root, name):
    def owned_by_root(info):
        info.uid = info.gid = 0
        if info.isdir():
            info.mode = 0o1777 if info.name == "./tmp" else 0o755
        return info

    archive = root.parent / "image.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(root, ".", filter=owned_by_root)
    made = podman("import", archive, name)
    archive.unlink()
    return made


class Engine:
    """A podman with storage of its own."""

    def __init__(self, launcher, probe, rank):
        self.launcher, self.probe, self.outside = launcher, probe, (launcher, rank)
        self.holder = tempfile.TemporaryDirectory(prefix="chainmail-containers.", ignore_cleanup_errors=True)
        self.folder = pathlib.Path(self.holder.name)
        (self.folder / "storage.conf").write_text(
            f'[storage]\ndriver = "vfs"\ngraphroot = "{self.folder}/store"\nrunroot = "{self.folder}/run"\n')
        (self.folder / "containers.conf").write_text(SETTINGS)
        os.environ["CONTAINERS_STORAGE_CONF"] = f"{self.folder}/storage.conf"
        os.environ["CONTAINERS_CONF"] = f"{self.folder}/containers.conf"
        self.shell = self.folder / "shell"
        self.shell.write_text(SHELL)
        self.shell.chmod(0o755)

    def why_unusable(self):
        """Empty where containers can be run; makes the image."""
        (self.folder / "root").mkdir()
        made = load(Image(self.folder / "root", self.outside, COMMANDS).root, "localhost/chainmail-test:1")
        ran = podman("run", "--rm", "--init", "--network", "host", "localhost/chainmail-test:1", "true")
        return "" if made.returncode == ran.returncode == 0 else made.stderr + ran.stderr

    def image_without(self, *commands):
        folder = self.folder / ("without." + ".".join(commands))
        folder.mkdir()
        name = f"localhost/without-{'-'.join(commands)}:1"
        made = load(Image(folder, self.outside, [c for c in COMMANDS if c not in commands]).root, name)
        assert made.returncode == 0, made.stderr
        return name

    def image_of_busybox(self):
        """Its commands need no library, so there is none."""
        root = self.folder / "busybox"
        for name in ("bin", "tmp", "proc", "sys", "dev"):
            (root / name).mkdir(parents=True)
        shutil.copy(shutil.which("busybox"), root / "bin/busybox")
        for command in COMMANDS:
            (root / "bin" / command).symlink_to("busybox")
        made = load(root, "localhost/busybox:1")
        assert made.returncode == 0, made.stderr
        return "localhost/busybox:1"

    def job(self, *words, options=(), image="localhost/chainmail-test:1", hosts="n1,localhost", label="test"):
        return Job(self.probe, self.launcher, "engine=podman", f"image={image}", f"told={self.folder}/told",
                   f"label=chainmail.job={label}", f"mount={self.folder}:{self.folder}", *options, "--",
                   "--rsh", self.shell, "--wdir", self.folder, "--lease", LEASE, "-H", hosts, *words)

    def containers(self):
        return podman("ps", "-a", "--format", "{{.Names}} {{.Status}}").stdout.splitlines()

    def clean(self):
        left = podman("ps", "-aq").stdout.split()
        if left:
            podman("rm", "-f", "-t", "0", *left)
        # Overlays and namespaces of podman's own may be mounted below.
        mounts = [line.split()[1] for line in open("/proc/mounts", encoding="utf-8")]
        for mount in sorted((m for m in mounts if m.startswith(str(self.folder))), reverse=True):
            subprocess.run(["umount", mount], check=False)
        self.holder.cleanup()


ENGINE = None


def ranks_run_inside(_launcher, _probe, rank):
    folder = os.path.dirname(rank)
    with ENGINE.job("-n", 4, rank, "store", options=[f"mount={folder}:{folder}:ro"],
                    hosts="n1:2,localhost:2") as job:
        job.ends_with(0, 60)
        secrets = job.text("out").splitlines()
        assert len(secrets) == 4 and len(set(secrets)) == 1, job.all()
    script = ("cat /etc/image; echo pid $(cat /proc/1/cmdline | tr '\\0' ' '); echo $(id -u) $PWD; "
              "echo shm $(df -kP /dev/shm | tail -n 1 | { read a b c; echo $b; })")
    with ENGINE.job("-n", 2, "sh", "-c", script) as job:
        job.ends_with(0, 60)
        text = job.text("out")
        assert text.count("of the test") == 2 and text.count(f"0 {ENGINE.folder}\n") == 2, job.all()
        own = os.statvfs("/dev/shm")
        assert text.count(f"shm {own.f_blocks * own.f_frsize // 1024}\n") == 2, job.all()
    assert not ENGINE.containers()


def preparation_and_ranks_are_in_the_same_container(*_):
    with ENGINE.job("-n", 2, "--prepare", "sh -c 'echo $NODE_RANK >/root/prepared; touch $CHAINMAIL_JOB_TEMP/x'",
                    "sh", "-c", "echo $NODE_RANK=$(cat /root/prepared) $(ls $CHAINMAIL_JOB_TEMP)",
                    options=["temp", "prefix=given"]) as job:
        job.ends_with(0, 60)
        assert sorted(job.text("out").split()) == ["0=0", "1=1", "x", "x"], job.all()
        job.leaves_nothing()


def names_and_labels_are_as_asked_for(*_):
    with ENGINE.job("-n", 2, "sh", "-c", "echo up; sleep 100", options=["prefix=chainmail-u-u"]) as job:
        job.wait_for("up", 2, 60)
        names = sorted(line.split()[0] for line in ENGINE.containers())
        assert names == ["chainmail-u-u-0", "chainmail-u-u-1"], names
        assert len(podman("ps", "-q", "--filter", "label=chainmail.job=test").stdout.split()) == 2
        job.process.send_signal(signal.SIGINT)
        job.ends_with(130)
        job.leaves_nothing()
    assert not ENGINE.containers()


def what_is_missing_is_said(*_):
    def refused(*texts, code=125, **how):
        with ENGINE.job("-n", 1, "true", hosts="n1", **how) as job:
            job.ends_with(code, 60)
            for text in texts:
                job.says(text)
            job.leaves_nothing()

    refused("commands are missing: cksum sed", image=ENGINE.image_without("sed", "cksum"))
    # Podman may lose what its init says of it.
    refused("/bin/sh that can be run", image=ENGINE.image_without("sh"))
    # One that needs libraries would find none.
    if shutil.which("busybox") and not libraries_of(shutil.which("busybox")):
        refused("another C library: there is no /lib", image=ENGINE.image_of_busybox())
    refused("podman on host n1 cannot start a container of image localhost/none:1", "| Error",
            image="localhost/none:1")
    refused("container: there is no /no/such/folder", options=["mount=/no/such/folder:/data"])
    with ENGINE.job("-n", 1, "/opt/none", hosts="n1") as job:
        job.ends_with(127, 60)
        job.says("program not found on host n1: /opt/none")
        job.says("which has what is in the image and in the folders that are mounted")
    assert not ENGINE.containers()


def a_client_that_is_killed_is_a_lost_host(*_):
    with ENGINE.job("-n", 2, "sh", "-c", "echo up; sleep 100") as job:
        job.wait_for("up", 2, 60)
        clients = [pid for pid in job.processes() if command_of(pid)[:2] == [b"podman", b"run"]]
        assert len(clients) == 2, clients
        os.kill(clients[0], signal.SIGKILL)
        job.ends_with(125, 30)
        job.says("lost host")
        job.leaves_nothing()
    assert not ENGINE.containers(), "and its container is gone when the launcher is"


def of_file(launcher, *options, **job):
    """`launcher --job` of such a job in containers."""
    path = ENGINE.folder / "inside.json"
    path.write_text(json.dumps({
        "chainmail": 1, "ranks": 4, "hosts": {"from": "n1:2,localhost:2"}, "outputs": {"MODEL": "results"},
        "secrets": {"TOKEN": None}, "container": {"engine": "podman", "image": "localhost/chainmail-test:1"}, **job}))
    return Job(launcher, "--job", path, "--rsh", ENGINE.shell, "--lease", LEASE, *options,
               environment={"CHAINMAIL_STATE": str(ENGINE.folder / "state"), "TOKEN": "token-5ab1e1"})


def job_files_have_their_containers(launcher, *_):
    program = ["sh", "-c", "cat /etc/image $$AZ_BATCHAI_JOB_TEMP/made; echo $$TOKEN > ${output.MODEL}/$$RANK"]
    with of_file(launcher, program=program, prepare={"command": "echo prepared > $AZ_BATCHAI_JOB_TEMP/made"}) as job:
        job.ends_with(0, 60)
        text = job.text("out")
        assert text.count("of the test\n") == 4 and text.count("prepared\n") == 4, job.all()
        made = sorted(ENGINE.folder.glob("results/jobs/inside/*/*"))
        assert [path.name for path in made] == ["0", "1", "2", "3"], made
        assert {path.read_text() for path in made} == {"token-5ab1e1\n"}
        job.leaves_nothing()
    assert not ENGINE.containers()
    for _ in range(int(os.environ.get("KILLS", "2"))):
        with of_file(launcher, program=["sh", "-c", "echo up; sleep 100"]) as job:
            job.wait_for("up", 4, 60)
            told = podman("inspect", "--format", "{{.Config.Cmd}} {{.Config.Env}}",
                          *[line.split()[0] for line in ENGINE.containers()]).stdout
            assert "sh" in told and "token-5ab1e1" not in told, told
            for pid in job.processes(): assert b"token-5ab1e1" not in b" ".join(command_of(pid))
            job.kill_launcher()
            wait_until(lambda: not ENGINE.containers(), lambda: str(ENGINE.containers()), LEASE + 2)
            job.leaves_nothing(LEASE + 2)


# At any moment, while containers are being started, too.
def launchers_that_are_killed_leave_nothing(*_):
    for _ in range(int(os.environ.get("KILLS", "3"))):
        with ENGINE.job("-n", 4, "sh", "-c", "echo up; sleep 100", hosts="n1:2,localhost:2") as job:
            if random.random() < 0.5:
                job.wait_for("up", 4, 60)
            else:
                time.sleep(random.random() * 1.5)
            job.kill_launcher()
            began = time.monotonic()
            wait_until(lambda: not ENGINE.containers(), lambda: str(ENGINE.containers()), LEASE + 2)
            job.leaves_nothing(LEASE + 2)
            print(f"  gone after {time.monotonic() - began:.2f} s", flush=True)


def begin(arguments):
    """The exit code, or nothing where there is an engine now."""
    global ENGINE
    if os.geteuid() != 0 or not shutil.which("podman"):
        print("skipped: needs root and podman (apt-get install podman crun catatonit)")
        return 77
    ENGINE = Engine(*arguments.given)
    why = ENGINE.why_unusable()
    if not why:
        return None
    ENGINE.clean()
    if "CHAINMAIL_OWN_CGROUPS" not in os.environ:
        # crun refuses the mixture of both versions that some machines have.
        os.environ["CHAINMAIL_OWN_CGROUPS"] = "1"
        mounts = "umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup; exec \"$@\""
        os.execvp("unshare", ["unshare", "--mount", "sh", "-c", mounts, "sh", sys.executable, "-B", *sys.argv])
    print(f"skipped: containers cannot be run here: {why.strip()}")
    return 77


def run():
    arguments = Arguments(3)
    code = begin(arguments)
    if code is not None:
        return code
    try:
        return main([ranks_run_inside, preparation_and_ranks_are_in_the_same_container,
                     names_and_labels_are_as_asked_for, what_is_missing_is_said,
                     a_client_that_is_killed_is_a_lost_host, job_files_have_their_containers,
                     launchers_that_are_killed_leave_nothing],
                    arguments)
    finally:
        ENGINE.clean()


if __name__ == "__main__":
    sys.exit(run())
