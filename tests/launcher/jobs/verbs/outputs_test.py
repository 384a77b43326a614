#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Outputs of jobs: `launcher ls`, `launcher cp` and `launcher rm --outputs`; and the pages for shells.

    outputs_test.py LAUNCHER FAKE_SUPERVISOR [CASE...]
"""

import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys

from fake_jobs import Desk

from outside import Arguments, main, patient, wait_until


def shown(desk, job):
    return json.loads(desk.says(0, "show", "--json", job).stdout)


def outputs_of(desk, job):
    return {entry["id"]: pathlib.Path(entry["path"])
            for entry in json.loads(desk.says(0, "ls", job, "--json").stdout)}


def all_of(folder):
    """What is in a folder, with what copies keep."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = os.readlink(path) if path.is_symlink() else (
            path.read_bytes() if path.is_file() else None)
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_mtime_ns, content)
    return found


def make_model(folder):
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "sub" / "one.bin").write_bytes(bytes(range(256)) * 1000)
    (folder / "sub" / "deep" / "run").write_text("#!/bin/sh\n")
    (folder / "sub" / "deep" / "run").chmod(0o755)
    (folder / "latest").symlink_to("sub/one.bin")
    (folder / "-n strange\nname").write_text("x")
    (folder / "sub" / "read_only").mkdir()
    (folder / "sub" / "read_only" / "file").write_text("y")
    (folder / "sub" / "read_only").chmod(0o555)
    for path in folder.rglob("*"):
        os.utime(path, (1.5e9, 1.6e9), follow_symlinks=False)


# A name used twice: neither run's files are the other's.
def lists_outputs(launcher, fake):
    with Desk(launcher, fake) as desk:
        folders = []
        for _ in range(2):
            with desk.supervisor("mnist", desk.folder / "logs") as job:
                job.do(f"output MODEL {desk.folder}/results")
                job.do("append stdout.txt hello")
                folders.append(outputs_of(desk, job.id))
                make_model(folders[-1]["MODEL"])
                job.end()
        assert folders[0]["MODEL"] != folders[1]["MODEL"]
        assert folders[0]["stdouterr"] != folders[1]["stdouterr"]
        assert outputs_of(desk, "mnist") == folders[1]
        text = desk.says(0, "ls", job.id).stdout.splitlines()
        assert [line.split()[0] for line in text] == ["ID", "stdouterr", "MODEL"], text
        assert desk.says(0, "ls", job.id, "stdouterr").stdout == "stdout.txt\n"
        names = desk.says(0, "ls", job.id, "MODEL").stdout.splitlines()
        assert names == ["-n strange name", "latest -> sub/one.bin", "sub/"], names
        assert desk.says(0, "ls", job.id, "MODEL", "sub/").stdout == "deep/\none.bin\nread_only/\n"
        listed = desk.says(0, "ls", "-l", job.id, "MODEL", "sub/one.bin").stdout
        assert listed.splitlines()[1].split()[::2] == ["256000", "one.bin"], listed
        entries = json.loads(desk.says(0, "ls", "--json", job.id, "MODEL").stdout)
        assert [(one["name"], one["kind"]) for one in entries] == [
            ("-n strange\nname", "file"), ("latest", "link"), ("sub", "folder")], entries
        assert entries[0]["modified_ms"] == 1600000000000 and entries[0]["bytes"] == 1
        assert "stdouterr, MODEL" in desk.says(2, "ls", job.id, "MODLE").stderr
        assert "no 'x'" in desk.says(2, "ls", job.id, "MODEL", "x").stderr


def no_path_leads_out(launcher, fake):
    with Desk(launcher, fake) as desk, desk.supervisor("mnist") as job:
        job.do(f"output MODEL {desk.folder}/results")
        model = outputs_of(desk, job.id)["MODEL"]
        (desk.folder / "secret").write_text("secret")
        (model / "sub").mkdir()
        (model / "out").symlink_to(desk.folder / "secret")
        (model / "up").symlink_to("../..")
        (model / "in").symlink_to(model / "sub")
        (model.parent / (model.name + "x")).mkdir()
        (model / "neighbour").symlink_to(f"../{model.name}x")
        target = desk.folder / "copy"
        for path in ("..", "sub/../..", "/etc/passwd", "out", "up", "neighbour", "up/x"):
            desk.says(2, "ls", job.id, "MODEL", path)
            desk.says(2, "cp", job.id, f"MODEL:{path}", target)
        assert not target.exists()
        desk.says(0, "ls", job.id, "MODEL", "in")
        job.end()


def copies_are_whole(launcher, fake):
    with Desk(launcher, fake) as desk, desk.supervisor("mnist") as job:
        job.do(f"output MODEL {desk.folder}/results")
        model = outputs_of(desk, job.id)["MODEL"]
        make_model(model)
        here = desk.folder / "here"
        here.mkdir()
        desk.says(0, "cp", job.id, "MODEL:", here)
        assert all_of(here / "MODEL") == all_of(model)
        desk.says(0, "cp", job.id, "MODEL:sub/one.bin", here / "copy")
        assert (here / "copy").read_bytes() == (model / "sub/one.bin").read_bytes()
        assert (here / "copy").stat().st_mtime == 1.6e9
        desk.says(0, "cp", job.id, "MODEL:latest", here)
        assert not (here / "latest").is_symlink()
        desk.says(0, "cp", job.id, "MODEL:sub/deep/run", here / "copy")
        assert (here / "copy").stat().st_mode & 0o777 == 0o755
        desk.says(0, "cp", job.id, "MODEL:sub", "there", cwd=here)
        assert all_of(here / "there") == all_of(model / "sub")
        assert "already" in desk.says(2, "cp", job.id, "MODEL:", here).stderr
        assert "no folder" in desk.says(2, "cp", job.id, "MODEL:", here / "no/such").stderr
        assert "itself" in desk.says(2, "cp", job.id, "MODEL:", model / "sub" / "again").stderr
        assert "ID:PATH" in desk.says(2, "cp", job.id, "MODEL", here).stderr
        os.mkfifo(model / "pipe")
        assert "pipe" in desk.says(0, "cp", job.id, "MODEL:", here / "more").stderr
        assert "pipe" in desk.says(125, "cp", job.id, "MODEL:pipe", here / "pipe").stderr
        # What a link leads to takes the copy; what is no file stays what it is.
        (here / "target").write_text("old")
        os.symlink("target", here / "link")
        desk.says(0, "cp", job.id, "MODEL:sub/one.bin", here / "link")
        assert (here / "link").is_symlink() and (here / "target").read_bytes() == (model / "sub/one.bin").read_bytes()
        os.symlink("nowhere", here / "dangling")
        os.mkfifo(here / "fifo")
        for name in "dangling", "fifo":
            assert name in desk.says(2, "cp", job.id, "MODEL:sub/one.bin", here / name).stderr
        assert stat.S_ISFIFO(os.lstat(here / "fifo").st_mode) and (here / "dangling").is_symlink()
        assert "stdout" in desk.says(2, "cp", job.id, "MODEL:sub/one.bin", "/dev/stdout").stderr
        for name in "link", "target", "dangling", "fifo":
            (here / name).unlink()
        # One that is interrupted leaves nothing.
        with open(model / "large", "wb") as large:
            large.truncate(64 << 30)
        process = desk.start("cp", job.id, "MODEL:large", here / "large")
        wait_until(lambda: any(name.startswith(".chainmail-cp") for name in os.listdir(here)),
                   lambda: os.listdir(here))
        process.send_signal(signal.SIGINT)
        assert process.wait(patient(10)) == 130
        process.communicate()
        assert sorted(os.listdir(here)) == ["MODEL", "copy", "latest", "more", "there"]
        (model / "large").unlink()
        job.end()


SSH = r"""#!/bin/sh
printf '%s\n' "$@" >"$0.words"
for word; do host=$program; program=$word; done
case $program in /bin/sh) ;; *) exit 99 ;; esac
[ "$host" != down ] || { echo "ssh: connect to host down port 22: No route to host" >&2; exit 255; }
[ "$host" != half ] || { tar -cf - -C / etc/passwd 2>/dev/null | head -c 700; exit 0; }
# The other machine has the folder under the name that this one has not.
mv "$REAL.away" "$REAL"
/bin/sh
code=$?
mv "$REAL" "$REAL.away"
exit $code
"""


# What is on the launcher's machine alone comes from there.
def copies_come_from_the_host(launcher, fake):
    with Desk(launcher, fake) as desk, desk.supervisor("mnist") as job:
        strange = desk.folder / "it's $(touch here) `x`"
        (desk.folder / "link").symlink_to(strange)
        strange.mkdir()
        job.do(f"output MODEL {desk.folder}/link")
        state = shown(desk, job.id)
        real = pathlib.Path(state["outputs"][0]["path"])
        # As a job file would say it, with all that a shell would act upon.
        state["outputs"][0]["path"] = str(strange / real.relative_to(desk.folder / "link"))
        real = pathlib.Path(state["outputs"][0]["path"])
        make_model(real)
        (real / "up").symlink_to("../..")
        tools = desk.folder / "tools"
        tools.mkdir()
        (tools / "ssh").write_text(SSH)
        (tools / "ssh").chmod(0o755)
        desk.environment.update(PATH=f"{tools}:{desk.environment['PATH']}", REAL=str(real))
        job.kill()

        def be_on(host):
            state["launcher"].update(host=host, boot_id="another")
            state["state"] = "succeeded"
            (job.folder / "state.json").write_text(json.dumps(state))

        before = all_of(real)
        real.rename(f"{real}.away")
        here = desk.folder / "here"
        here.mkdir()
        be_on("n7.example.org")
        assert "n7" in desk.says(125, "ls", job.id, "MODEL").stderr
        desk.says(0, "cp", job.id, "MODEL:", here / "all", cwd=here)
        copied = all_of(here / "all")
        # tar has seconds.
        assert {name: (mode, text) for name, (mode, _, text) in copied.items()} == {
            name: (mode, text) for name, (mode, _, text) in before.items()}
        assert copied["sub/one.bin"][1] == int(1.6e18)
        words = (tools / "ssh.words").read_text().splitlines()
        assert words[-3:] == ["--", "n7.example.org", "/bin/sh"], words
        desk.says(0, "cp", job.id, "MODEL:latest", here / "one", cwd=here)
        assert (here / "one").stat().st_size == 256000
        assert "leads out" in desk.says(125, "cp", job.id, "MODEL:up", here / "up", cwd=here).stderr
        assert "no 'x'" in desk.says(125, "cp", job.id, "MODEL:x", here / "x", cwd=here).stderr
        be_on("down")
        assert "No route" in desk.says(125, "cp", job.id, "MODEL:", here / "x", cwd=here).stderr
        be_on("half")
        desk.says(125, "cp", job.id, "MODEL:", here / "x", cwd=here)
        (tools / "ssh.words").unlink()
        for host in ("-oProxyCommand=touch x", "a;b", "$(touch x)", ""):
            be_on(host)
            result = desk.run("cp", job.id, "MODEL:", here / "x", cwd=here)
            assert result.returncode in (2, 125), (host, result)
        assert not (tools / "ssh.words").exists()
        assert sorted(os.listdir(here)) == ["all", "one"]
        pathlib.Path(f"{real}.away").rename(real)
        (real / "sub/read_only").chmod(0o755)


# Of that run alone, and never what a link leads to.
def removes_its_own_outputs(launcher, fake):
    with Desk(launcher, fake) as desk:
        runs = []
        for _ in range(3):
            with desk.supervisor("mnist", desk.folder / "logs") as job:
                job.do(f"output MODEL {desk.folder}/results")
                job.do("append stdout.txt x")
                runs.append((job.id, outputs_of(desk, job.id)))
                job.end()
        precious = desk.folder / "precious"
        precious.mkdir()
        (precious / "file").touch()
        (runs[0][1]["MODEL"] / "link").symlink_to(precious)
        state = shown(desk, runs[0][0])
        state["inputs"] = [{"id": "DATA", "path": str(precious)}]
        state["outputs"].append({"id": "HOME", "path": str(precious)})
        state["outputs"].append({"id": "UP", "path": f"{precious}/{state['uuid']}/.."})
        (desk.root / "jobs" / runs[0][0] / "state.json").write_text(json.dumps(state))
        desk.says(0, "rm", "--outputs", runs[0][0])
        assert [folder.exists() for folder in runs[0][1].values()] == [False, False]
        assert all(folder.exists() for _, run in runs[1:] for folder in run.values())
        assert (precious / "file").exists()
        # A link in the folder's place is not followed, and the job stays.
        model = runs[1][1]["MODEL"]
        model.rmdir()
        model.symlink_to(precious)
        assert "not a folder" in desk.says(125, "rm", "--outputs", runs[1][0]).stderr
        assert (precious / "file").exists() and (desk.root / "jobs" / runs[1][0]).exists()
        # Without the option they stay.
        desk.says(0, "rm", runs[2][0])
        assert all(folder.exists() for folder in runs[2][1].values())


def pages_are_valid(launcher, fake):
    with Desk(launcher, fake) as desk, desk.supervisor("mnist") as job:
        page = desk.folder / "launcher.1"
        page.write_text(desk.says(0, "--write-man").stdout)
        for words in (["groff", "-ww", "-man", "-Tutf8"], ["mandoc", "-Wwarning"]):
            if shutil.which(words[0]):
                result = subprocess.run([*words, page], capture_output=True, text=True, check=False)
                assert result.returncode == 0 and not result.stderr, result.stderr
                assert "folders of their outputs" in result.stdout
        for shell in ("bash", "zsh", "fish"):
            script = desk.folder / shell
            script.write_text(desk.says(0, "--write-completion", shell).stdout)
            if shutil.which(shell):
                result = subprocess.run([shell, "-n", script], capture_output=True, check=False)
                assert result.returncode == 0 and not result.stderr, result
        desk.says(2, "--write-completion", "csh")
        for line, wanted in (("launcher logs m", job.id), ("launcher lo", "logs"),
                             ("launcher --hostf", "--hostfile"), ("launcher rm --out", "--outputs"),
                             ("launcher -n 2 --tag", "--tag-output")):
            words = line.split()
            script = f"""source {desk.folder}/bash; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}
                         _chainmail_launcher; printf '%s\\n' "${{COMPREPLY[@]}}" """
            environment = dict(desk.environment,
                               PATH=f"{os.path.dirname(launcher)}:{desk.environment['PATH']}")
            result = subprocess.run(["bash", "-c", script], env=environment, capture_output=True,
                                    text=True, check=True)
            assert wanted in result.stdout.split(), (line, result)


if __name__ == "__main__":
    sys.exit(main([lists_outputs, no_path_leads_out, copies_are_whole, copies_come_from_the_host,
                   removes_its_own_outputs, pages_are_valid], Arguments(2)))
