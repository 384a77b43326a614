#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Programs that somebody else has put where a job could run them: planted_test.py LAUNCHER [CASE...]

A rank calls for the MPI helper as MPI_Init would; stand-ins for the helper say that they ran.
Needs root, to have files of other users.
"""

import os
import pathlib
import shutil
import sys
import tempfile
import threading
import time

from outside import Arguments, Job, Skipped, main

SOMEBODY = 65534
CALL = ("exec 3<>/dev/tcp/127.0.0.1/${PMIX_SERVER_URI4##*:} && printf %s \"$PMIX_NAMESPACE\" >&3; "
        "sleep 10")


class Folder:
    """With a launcher and a helper beside it; what ran is written into `ran`."""

    def __init__(self, launcher, mode, helpers_owner, helpers_mode=0o755):
        self.holder = tempfile.TemporaryDirectory(prefix="chainmail-planted.")
        os.chmod(self.holder.name, 0o755)
        self.path = pathlib.Path(self.holder.name, "bin")
        self.path.mkdir()
        self.ran = pathlib.Path(self.holder.name, "ran")
        self.ran.write_text("")
        os.chmod(self.ran, 0o666)
        self.launcher = self.path / "launcher"
        shutil.copy2(launcher, self.launcher)
        os.chmod(self.launcher, 0o755)
        self.helper = self.path / "chainmail-pmix"
        self.plant(self.helper, "helper", helpers_owner, helpers_mode)
        os.chmod(self.path, mode)

    def plant(self, path, name, owner, mode=0o755):
        path.write_text(f"#!/bin/sh\necho \"{name} $0\" >>{self.ran}\n")
        os.chmod(path, mode)
        os.chown(path, owner, owner)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.holder.cleanup()

    def what_ran(self):
        return self.ran.read_text()

    def call(self, code, message):
        with Job(self.launcher, "-n", 1, "bash", "-c", CALL) as job:
            job.ends_with(code)
            job.says(message)
            return self.what_ran()


def needs_root():
    if os.geteuid() != 0:
        raise Skipped("needs root")


# A helper that ends at once is lost.
LOST = "the MPI helper (chainmail-pmix) has"


def the_helper_beside_the_launcher_runs(launcher):
    needs_root()
    with Folder(launcher, 0o755, 0) as folder:
        ran = folder.call(125, LOST)
        assert ran == f"helper {folder.helper}\n", ran
    with Folder(launcher, 0o1777, 0) as folder:
        ran = folder.call(125, LOST + " ended with code 0")
        assert ran == f"helper {folder.helper}\n", ran


def a_helper_that_is_killed_is_told_as_such(launcher):
    needs_root()
    with Folder(launcher, 0o755, 0) as folder:
        folder.helper.write_text("#!/bin/sh\nkill -9 $$\n")
        folder.call(125, LOST + " been killed by signal 9")


def no_helper_of_somebody_runs(launcher):
    needs_root()
    with Folder(launcher, 0o1777, SOMEBODY) as folder:
        ran = folder.call(125, f"MPI cannot be served: {folder.helper} is not sent: {folder.helper} "
                               f"belongs to uid {SOMEBODY}, who is neither root nor this user")
        assert ran == "", ran
    with Folder(launcher, 0o755, 0, 0o757) as folder:
        ran = folder.call(125, f"is not sent: everybody may write to {folder.helper} (mode 0757)")
        assert ran == "", ran
    with Folder(launcher, 0o1777, 0) as folder:
        folder.helper.rename(folder.path / "other")
        folder.helper.symlink_to("other")
        os.lchown(folder.helper, SOMEBODY, SOMEBODY)
        ran = folder.call(125, f"is not sent: {folder.helper} belongs to uid {SOMEBODY}")
        assert ran == "", ran
        folder.helper.unlink()
        os.link(folder.path / "other", folder.helper)
        ran = folder.call(125, f"is not sent: {folder.helper} has 2 names")
        assert ran == "", ran


def a_launcher_without_a_helper_says_so(launcher):
    """Once a rank calls; a rank alone needs none, and Open MPI starts it as a job of one."""
    with tempfile.TemporaryDirectory(prefix="chainmail-planted.") as folder:
        own = shutil.copy2(launcher, folder)
        with Job(own, "-n", 2, "bash", "-c", CALL) as job:
            job.ends_with(125)
            job.says("the MPI helper (chainmail-pmix) is not run: it is not beside the launcher; it is built where")
        with Job(own, "-n", 1, "sh", "-c", "test -z \"$PMIX_NAMESPACE\"") as job:
            job.ends_with(0)
        with Job(own, "-n", 2, "--mpi", "pmix", "true") as job:
            job.ends_with(125)
            job.says("--mpi pmix needs chainmail-pmix: it is not beside the launcher")


def a_helper_to_which_a_group_may_write_runs_as_a_copy(launcher):
    """A tree built under umask 002: whoever may write to it may write to the launcher as well."""
    needs_root()
    with Folder(launcher, 0o775, 0, 0o775) as folder:
        os.chmod(folder.launcher, 0o775)
        ran = folder.call(125, LOST)
        assert ran.startswith("helper /") and ".job." in ran, ran


def a_helper_that_only_the_host_has_says_why_it_is_not_run(launcher):
    """On the other host another folder lies at the launcher's path."""
    needs_root()
    with Folder(launcher, 0o1777, SOMEBODY) as folder:
        with tempfile.TemporaryDirectory(prefix="chainmail-planted.") as here:
            own = shutil.copy2(launcher, here)
            rsh = pathlib.Path(here, "rsh")
            rsh.write_text(f"#!/bin/sh\nexec unshare -m sh -c 'mount --make-rprivate / && "
                           f"mount --bind {folder.path} {here} && exec /bin/sh'\n")
            rsh.chmod(0o755)
            with Job(own, "-H", "other.invalid:1", "--rsh", f"{rsh} %h",
                     "bash", "-c", CALL) as job:
                job.ends_with(125)
                job.says("the MPI helper (chainmail-pmix) is not run: ")
                job.says(f"chainmail-pmix belongs to uid {SOMEBODY}")
        assert folder.what_ran() == "", folder.what_ran()


def a_launcher_that_was_sent_looks_for_no_helper_in_its_folder(launcher):
    """The folder is gone when it runs; somebody makes it anew, before ranks start."""
    needs_root()
    with Folder(launcher, 0o775, 0) as folder, \
            tempfile.TemporaryDirectory(prefix="chainmail-planted.") as temporary:
        os.chmod(temporary, 0o1777)
        planted, may_go = threading.Event(), pathlib.Path(folder.holder.name, "go")

        def somebody():
            sent, seen = [], time.monotonic() + 20
            while not sent and time.monotonic() < seen:
                sent = list(pathlib.Path(temporary).glob("chainmail-agent.*"))
            while sent and sent[0].exists() and time.monotonic() < seen:
                time.sleep(0.002)
            if sent:
                sent[0].mkdir()
                shutil.copy2(launcher, sent[0] / "launcher (deleted)")
                folder.plant(sent[0] / "chainmail-pmix", "planted", SOMEBODY)
                os.chown(sent[0], SOMEBODY, SOMEBODY)
                planted.set()
            may_go.touch()

        rsh = pathlib.Path(folder.holder.name, "rsh")
        rsh.write_text(f"#!/bin/sh\nwhile [ $1 = slow.invalid ] && ! [ -e {may_go} ]; do sleep 0.1; "
                       "done\nexec /bin/sh\n")
        rsh.chmod(0o755)
        thread = threading.Thread(target=somebody)
        thread.start()
        with Job(folder.launcher, "-H", "fast.invalid:1,slow.invalid:1", "--rsh", f"{rsh} %h",
                 "bash", "-c", CALL, environment={"TMPDIR": temporary}) as job:
            job.ends_with(125)
            job.says(LOST)
        thread.join()
        assert planted.is_set(), "the launcher was not sent"
        ran = folder.what_ran()
        lines = ran.split("\n")[:-1]
        assert lines and all(line.startswith(f"helper {temporary}/") for line in lines), ran


def nothing_of_a_job_goes_where_it_could_be_replaced(launcher):
    needs_root()
    with tempfile.TemporaryDirectory(prefix="chainmail-planted.") as temporary:
        os.chmod(temporary, 0o777)
        look = ("sleep 1.2; echo $PMIX_SERVER_TMPDIR $CHAINMAIL_PRELOAD_DIR; "
                f"ls -d /tmp/chainmail-job.*; ls {temporary}")
        with Job(launcher, "-n", 1, "--preload-files", "/etc/passwd", "bash", "-c", look,
                 environment={"TMPDIR": temporary}) as job:
            job.ends_with(0)
            told = job.text("out").split("\n")
            assert all(word.startswith("/tmp/chainmail-") for word in told[0].split()), told
            assert f"/tmp/chainmail-job.{job.process.pid}." in job.text("out"), told
            job.says_not(temporary)
        assert not os.listdir(temporary)


if __name__ == "__main__":
    sys.exit(main([
        the_helper_beside_the_launcher_runs,
        a_helper_that_is_killed_is_told_as_such,
        no_helper_of_somebody_runs,
        a_launcher_without_a_helper_says_so,
        a_helper_to_which_a_group_may_write_runs_as_a_copy,
        a_helper_that_only_the_host_has_says_why_it_is_not_run,
        a_launcher_that_was_sent_looks_for_no_helper_in_its_folder,
        nothing_of_a_job_goes_where_it_could_be_replaced,
    ], Arguments(1)))
