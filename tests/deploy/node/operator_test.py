#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Machines that somebody has set up before: settings, users, homes, keys and files that are not as boot would make them,
full disks, a file system that does not answer, clocks that are set, and ends at any moment.

usage: isolated.sh operator_test.py [--all]
"""

import pathlib
import random
import sys
import time

from cluster import PROJECT, Machine, Network, ended_well, main, patient, wait_until

BOOT = "/usr/share/chainmail/node/boot"
CONF = "ROLE=master\nPROVIDER=files\nCLUSTER=demo\nSTORE=/shared/store\nSLOTS=4\nRETRY_FOR=3\nWAIT=4\n"
WORKER = CONF.replace("master", "worker", 1)
LOCAL = "127.0.0.1 localhost\n127.0.1.1 master\n"
BLOCK = "# BEGIN chainmail\n# END chainmail\n"
KEY = "/etc/chainmail/login/id_ed25519"
# One that writes a file at the same moment as a test would win now and then.
# One that has just begun has the lock before it has written its number.
END_WATCH = ("for i in $(seq 60); do kill $(cat /run/chainmail/watch.pid) 2>/dev/null; "
             "flock -w 1 /run/chainmail/watch.lock true && break; done; flock -n /run/chainmail/watch.lock true")
network = Network()
pathlib.Path("/tmp/shared/store").mkdir(parents=True, mode=0o755)


def switched_on(name):
    return Machine(network, name, f"10.77.0.{network.links + 1}", shared="/tmp/shared")


master = switched_on("master")


def boots(machine, conf=CONF, seconds=30):
    """(exit code, what it said)"""
    machine.write("/etc/chainmail/node.conf", conf)
    code, out, err = machine.run(BOOT, seconds=seconds)
    return code, out + err


def boots_well(machine, conf=CONF, seconds=30):
    code, said = boots(machine, conf, seconds)
    assert code == 0, said
    return said


def fails(name, conf=CONF, *, words=(), machine=master, seconds=30):
    code, said = boots(machine, conf, seconds)
    assert code == 1 and f"boot: {name}: " in said, f"code {code}, not {name}: {said}"
    for word in words: assert word in said, f"no '{word}': {said}"
    return said


def sh(text, machine=master):
    code, out, err = machine.run("sh", "-c", text)
    assert code == 0, f"{text}: {out}{err}"
    return out


def settings_that_are_none():
    """Refused before anything is made, by a message that says what to do."""
    for line, words in {
            "SLOTS=2\r\n": ("line ends of Windows",), "SLOTS = 2\n": ("SLOTS", "without blanks"), "nonsense\n": ("nonsense",),
            "exit 0\n": ("assignments",), "SHARED=$MOUNT\n": ("MOUNT",), "CLUSTER='a\n": ("nterminated",),
            "CLUSTER='a b'\n": ("CLUSTER=a b",), "CLUSTER='a;id'\n": ("CLUSTER=a;id",), "SLOTS=\n": ("SLOTS=",),
            "SLOTS=1025\n": ("SLOTS",), "WAIT=99999999999999999999\n": ("WAIT",), "SHARED=/\n": ("SHARED",),
            "SHARED=shared\n": ("SHARED",), "STORE=\n": ("STORE",), "STORE=store\n": ("STORE",), "ADDRESS=host\n": ("ADDRESS=host",),
            "PROVIDER=common\n": ("no such provider",), "PROVIDER=azure\nGROUP=g\n": ("GROUP=g",),
            "PROVIDER=gcp\nGROUP=\n": ("GROUP=",), "PROVIDER=gcp\nROLE=worker\n": ("MASTER=",), "ENDPOINT=x\n": ("ENDPOINT",),
            "PROVIDER=aws\nGROUP=\n": ("GROUP=",), "NODE_USER=root\n": ("NODE_USER=root",)}.items():
        if "aws" in line: master.write("/usr/local/bin/aws", "#!/bin/sh\nexit 1\n", 0o755)
        fails("bad-config", CONF + line, words=words)
    master.path("/usr/local/bin/aws").unlink()
    assert not master.path("/etc/chainmail/login").exists()
    sh("chmod 777 /etc/chainmail")
    fails("bad-config", words=("others than root may write to /etc/chainmail:",))
    sh("chmod 755 /etc/chainmail; ln -sf /tmp/conf /etc/chainmail/node.conf")
    sh("chown nobody /tmp/conf || { touch /tmp/conf; chown nobody /tmp/conf; }")
    fails("bad-config", words=("/tmp/conf is not root's",))
    sh("rm /etc/chainmail/node.conf")
    said = boots_well(master, "# a comment\n" + CONF + "\nSLOT=2\nexport SHARE='/x y'  # another\n")
    assert "SLOT is no key" in said and "SHARE is no key" in said, said


def commands_that_are_missing():
    """Named at once, not after RETRY_FOR."""
    for tool, conf in {"curl": "PROVIDER=gcp\nGROUP=g\n", "python3": "PROVIDER=azure\n", "flock": "", "ssh-keygen": "",
                       "sshd": "ROLE=worker\n"}.items():
        place = sh(f"readlink -f $(command -v {tool})").strip()
        sh(f"mv {place} /tmp/{tool}; mv $(command -v {tool}) /tmp/link 2>/dev/null || true")
        fails("no-tool", CONF + conf + "RETRY_FOR=600\n", words=(f"missing on this machine: {tool}",), seconds=20)
        sh(f"mv /tmp/{tool} {place}; ln -sf {place} /usr/bin/{tool} 2>/dev/null || true")


def users_of_another_number():
    sh("useradd -u 6001 other; useradd -u 5501 somebody; groupadd -g 7000 grouped; groupadd -g 5504 halfway")
    fails("no-user", CONF + "NODE_USER=other\nNODE_UID=5500\n", words=("has the number 6001", "usermod -u 5500 other"))
    fails("no-user", CONF + "NODE_USER=new\nNODE_UID=5501\n", words=("number of user somebody",))
    fails("no-user", CONF + "NODE_USER=grouped\nNODE_UID=5503\n", words=("group grouped with the number 7000",))
    boots_well(master, CONF + "NODE_USER=other\nNODE_UID=6001\n")
    boots_well(master, CONF + "NODE_USER=halfway\nNODE_UID=5504\n")  # of a useradd that was killed
    assert sh("id -u halfway; id -g halfway; getent shadow halfway").startswith("5504\n5504\nhalfway:*:")


def homes_of_somebody_else():
    boots_well(master)
    sh("mkdir -p /home/a /home/b /opt/precious; touch /home/c; chown nobody /home/a")
    fails("no-user", CONF + "NODE_USER=a\nNODE_UID=5511\n", words=("belongs to nobody (65534), not to a (5511)",))
    sh("chown 5512 /home/b; chmod 777 /home/b")
    fails("no-user", CONF + "NODE_USER=b\nNODE_UID=5512\n", words=("others may write to it",))
    fails("no-user", CONF + "NODE_USER=c\nNODE_UID=5513\n", words=("no folder",))
    # A folder where anybody may write: another user has guessed the name that the home has at first.
    sh("chmod 1777 /shared; ln -s /opt/precious /shared/e.new; chown -h nobody /shared/e.new")
    boots_well(master, CONF + "NODE_USER=e\nNODE_UID=5514\nSHARED=/shared/\n")
    assert sh("stat -c '%U %a' /shared/e /opt/precious; ls /opt/precious") == "e 700\nroot 755\n"
    # Or has made a link of it.
    sh("ln -s /opt/precious /shared/f; chown -h nobody /shared/f; chown 5515 /opt/precious")
    fails("no-user", CONF + "NODE_USER=f\nNODE_UID=5515\nSHARED=/shared\n", words=("/shared/f",))
    # One that root has made is the administrator's.
    sh("chmod 755 /shared; chown -h root /shared/f")
    boots_well(master, CONF + "NODE_USER=f\nNODE_UID=5515\nSHARED=/shared\n")
    said = boots_well(master, CONF + "SHARED=/shared\n")
    assert "the home of chainmail is /home/chainmail already, and not below SHARED=/shared" in said, said


def keys_that_are_none():
    boots_well(master)
    sh(f": >{KEY}; echo x >{KEY}.pub")  # a machine that lost power
    boots_well(master)
    sh(f"ssh-keygen -q -t ed25519 -N '' -f /tmp/k; cat /tmp/k >{KEY}; chmod 644 {KEY}")
    said = boots_well(master)
    assert "others could read " + KEY in said, said
    public = sh("cut -d ' ' -f 1,2 /tmp/k.pub").strip()
    assert public in master.read(KEY + ".pub") and public in master.read("/shared/store/login")
    sh(f"rm {KEY}.pub")
    boots_well(master)
    assert sh(f"stat -c '%U %a' {KEY} {KEY}.pub") == "chainmail 600\nchainmail 644\n"
    sh(f"ssh-keygen -q -p -P '' -N secret -f {KEY}")
    fails("no-key", words=("without a passphrase",))
    sh(f"rm {KEY}")
    boots_well(master)


def hosts_that_somebody_has_edited():
    """What is not boot's stays, whatever the marks look like; the block comes once."""
    more = "10.9.9.8 nas\n10.9.9.9 printer"
    for text in (LOCAL + more, LOCAL + "# BEGIN chainmail\n" + more, LOCAL + "# END chainmail\n" + more + "\n" + BLOCK,
                 LOCAL + BLOCK.replace("\n", "\r\n") + more, LOCAL + BLOCK + "# BEGIN chainmail\n" + more + "\n" + BLOCK):
        sh(END_WATCH)
        master.write("/etc/hosts", text, 0o664)
        for _ in range(2): boots_well(master)
        assert master.read("/etc/hosts") == LOCAL + more + "\n" + BLOCK, text + "became\n" + master.read("/etc/hosts")
    assert sh("stat -c %a /etc/hosts") == "664\n"
    sh(END_WATCH)
    sh("mkdir -p /data; mv /etc/hosts /data/hosts; ln -s /data/hosts /etc/hosts; echo 10.9.9.7 new >>/data/hosts")
    boots_well(master)
    assert sh("readlink /etc/hosts") == "/data/hosts\n" and "10.9.9.7 new\n" + BLOCK in master.read("/data/hosts")
    sh("rm /etc/hosts; mv /data/hosts /etc/hosts")


def hosts_that_are_mounted():
    """As containers have it: it cannot be renamed over."""
    store = pathlib.Path("/tmp/shared/store/node")
    store.mkdir(exist_ok=True)
    record = store / "gone"
    record.write_text("gone 10.77.0.200 4 ssh-ed25519 AAAA\n")
    master.write("/tmp/hosts", LOCAL)
    # A watch that is about to write has read the one below.
    sh(END_WATCH + " && mount --bind /tmp/hosts /etc/hosts")
    boots_well(master)
    assert "\n10.77.0.200 gone\n# END chainmail\n" in master.read("/etc/hosts"), master.read("/etc/hosts")
    record.unlink()
    wait_until(lambda: master.read("/etc/hosts") == LOCAL + BLOCK, lambda: master.read("/etc/hosts"), 15)
    sh("sed -i /chainmail/d /tmp/hosts; umount /etc/hosts; mount --bind /tmp/hosts /etc/hosts; mount -o remount,ro,bind /etc/hosts")
    fails("no-files", words=("/etc/hosts cannot be written",))
    wait_until(lambda: "watch: the hosts cannot be written: /etc/hosts" in master.log(), master.log, 15)
    sh("mount -o remount,rw,bind /etc/hosts")
    wait_until(lambda: "watch: the hosts are written again" in master.log(), master.log, 15)
    sh("umount /etc/hosts; rm /tmp/hosts")
    assert not sh("ls /etc /run/chainmail | grep chainmail- || true"), "something is left"


def disks_that_are_full():
    """The hostfile stays, and nothing waits for ever."""
    boots_well(master)
    before = master.read("/etc/chainmail/hosts")
    sh("cp -a /etc/chainmail /tmp/copy; mount -t tmpfs -o size=48k tmpfs /etc/chainmail; cp -a /tmp/copy/. /etc/chainmail/")
    sh("cat /dev/zero >/etc/chainmail/fill 2>/dev/null || true")
    fails("no-files", CONF + "SLOTS=5\n", words=("/etc/chainmail/hosts cannot be written",))
    assert master.read("/etc/chainmail/hosts") == before
    sh("umount -l /etc/chainmail; rm -r /tmp/copy")
    sh(END_WATCH + " && mount -t tmpfs -o size=8k tmpfs /run/chainmail")
    sh("cat /dev/zero >/run/chainmail/fill 2>/dev/null || true")
    code, said = boots(master)
    assert code == 1 and master.read("/etc/chainmail/hosts") == before, said
    sh("umount -l /run/chainmail")
    boots_well(master)


def a_file_system_that_does_not_answer():
    """As NFS that is mounted hard, whose server is away."""
    sh("mkdir -p /away")
    master.copy(PROJECT / "tests/support/away.py", "/tmp/away.py")
    server = master.start("python3", "/tmp/away.py", "/away")
    said = server.stdout.readline()
    if said != "mounted\n": return f"(skipped: no FUSE here: {said}{server.stdout.read()[-200:]})"
    try:
        begun = time.monotonic()
        fails("no-shared", CONF + "SHARED=/away\n", words=("what is mounted at /away has not answered",))
        took = time.monotonic() - begun
        wait_until(lambda: not sh("ps -e -o args= | grep '[m]ountpoint' || true"), lambda: sh("ps -e -o stat=,args="), 5)
        return f"(after {took:.1f} s)"
    finally:
        sh("umount -l /away")
        server.communicate(timeout=patient(30))


DATE = """#!/bin/sh
[ "$*" != +%s ] || [ ! -f /tmp/is_set ] || exec /bin/date -d '+1 hour' +%s
exec /bin/date "$@"
"""


def a_clock_that_is_set():
    """Machines set theirs just after the start. A worker waits as long as it should all the same."""
    sh(END_WATCH)
    pathlib.Path("/tmp/shared/store/login").unlink(missing_ok=True)
    worker = switched_on("clock")
    worker.write("/usr/local/bin/date", DATE, 0o755)
    worker.write("/etc/chainmail/node.conf", WORKER + "WAIT=60\n")
    boot = worker.boot()
    wait_until(lambda: "has not stored its key" in worker.read("/run/chainmail/why.login"), worker.log, 30)
    worker.write("/tmp/is_set", "")
    time.sleep(3)
    boots_well(master)
    ended_well(boot)
    worker.switch_off()


def names_of_others():
    """Two machines with one name do not take turns, and the log says which are left out."""
    boots_well(master)
    one, clone, same, capitals = [switched_on(name) for name in ("one", "one", "master", "MASTER")]
    try:
        boots_well(one, WORKER)
        wait_until(lambda: "one slots=4" in master.read("/etc/chainmail/hosts"), master.log, 15)
        fails("no-store", WORKER, words=(f"another machine is called one as well, at {one.address}",), machine=clone)
        for machine in (same, capitals): boots_well(machine, WORKER)
        for name in ("master", "MASTER"):
            wait_until(lambda: f"left out {name}: it has the name of the master" in master.log(), master.log, 70)
        assert master.read("/etc/chainmail/hosts") == "master slots=4\none slots=4\n"
        assert f"{one.address} one\n" in master.read("/etc/hosts")
        time.sleep(11)
        assert master.log().count("left out MASTER") == 1, master.log()
    finally:
        for machine in (one, clone, same, capitals): machine.switch_off()


def an_sshd_of_somebody_elses():
    worker = switched_on("sshd")
    try:
        sh("sed -i /Include/d /etc/ssh/sshd_config; printf 'UseDNS no' >>/etc/ssh/sshd_config; chmod 640 /etc/ssh/sshd_config",
           worker)
        for _ in range(2): boots_well(worker, WORKER)
        text = worker.read("/etc/ssh/sshd_config")
        assert "\nUseDNS no\n# BEGIN chainmail\n" in text and text.count("chainmail\n  AuthorizedKeysFile") == 1, text[-400:]
        assert sh("stat -c %a /etc/ssh/sshd_config", worker) == "640\n"
        sh("rm /etc/ssh/ssh_host_ed25519_key.pub", worker)
        boots_well(worker, WORKER)
        sh("chmod 666 /etc/ssh/ssh_host_ed25519_key", worker)
        fails("no-sshd", WORKER, words=("0666 for '/etc/ssh/ssh_host_ed25519_key' are too open",), machine=worker, seconds=60)
    finally:
        worker.switch_off()


def a_second_master():
    """The later one stays, and the first says so, once. They do not take turns."""
    other = switched_on("second")
    try:
        # How often a master looks at what is stored as its key: every minute.
        script = master.path("/usr/share/chainmail/node/master.sh")
        script.write_text(script.read_text().replace("records_every=60", "records_every=2"))
        boots_well(master)
        time.sleep(8)
        boots_well(other)
        wait_until(lambda: f"another machine, {other.address}, is the master now" in master.log(), master.log, 30)
        time.sleep(11)
        assert master.read("/shared/store/login").startswith(other.address + " "), master.read("/shared/store/login")
        assert master.log().count("is the master now") == 1 and "is the master now" not in other.log()
        boots_well(master)
        assert master.read("/shared/store/login").startswith(master.address + " ")
    finally:
        other.switch_off()


def a_watch_that_has_only_begun():
    """It has the lock, and in watch.pid stands the number of the one before."""
    boots_well(master)
    sh(END_WATCH)
    master.write("/tmp/boot", "exec 9>/run/chainmail/watch.lock; flock 9; sleep 3 9>&-; echo $$ >/run/chainmail/watch.pid\n"
                 "sleep 300 9>&-\n")
    sh("setsid sh /tmp/boot watch </dev/null >/dev/null 2>&1 &")
    wait_until(lambda: sh("flock -n /run/chainmail/watch.lock true || echo held"), master.log, 10)
    boots_well(master)


def ends_by_a_signal():
    """The watch, which was ended first, runs again."""
    boots_well(master)
    before = master.read("/run/chainmail/watch.pid")
    master.write("/etc/chainmail/node.conf", CONF + "SHARED=/none\nWAIT=600\n")
    boot = master.boot()
    wait_until(lambda: not sh(f"ps -o pid= {before.strip()} || true"), master.log, 30)
    time.sleep(1)
    sh("kill $(ps -e -o pid=,args= | awk '/sh .*node.boot$/ { print $1; exit }')")
    said, _ = boot.communicate(timeout=patient(60))
    assert boot.returncode == 1 and "boot: interrupted: " in said, said
    wait_until(lambda: sh("ps -e -o args= | grep '[b]oot watch' || true"), master.log, 30)


def ends_at_any_moment():
    """And again. Nothing of them is left, and two at once are one after the other."""
    chance = random.Random(20)
    for _ in range(5):
        sh("kill -9 $(cat /run/chainmail/watch.pid); userdel chainmail; rm -rf /home/chainmail /etc/chainmail/login")
        for _ in range(4):
            boot = master.boot()
            time.sleep(chance.random() * 0.6)
            sh("kill -9 $(ps -e -o pid=,args= | awk '/node.boot/ && !/awk/ { print $1 }') 2>/dev/null || true")
            boot.communicate()
        boots_well(master, CONF.replace("WAIT=4", "WAIT=60"), seconds=90)
        assert sh("getent shadow chainmail").startswith("chainmail:*:")
        left = sh("ls -d /etc/*chainmail-* /etc/ssh/*chainmail-* /etc/ssh/*/*chainmail-* /home/*chainmail-* 2>/dev/null || true")
        assert not left, left
    both = [master.boot() for _ in range(2)]
    ended_well(*both)
    assert sh("ps -e -o ppid=,args= | grep -c '^ *1 .*[b]oot watch'") == "1\n"


CASES = [settings_that_are_none, users_of_another_number, homes_of_somebody_else, keys_that_are_none,
         hosts_that_somebody_has_edited, hosts_that_are_mounted, a_watch_that_has_only_begun,
         a_file_system_that_does_not_answer, a_clock_that_is_set]
LONG = [commands_that_are_missing, disks_that_are_full, names_of_others, an_sshd_of_somebody_elses, ends_by_a_signal,
        ends_at_any_moment, a_second_master]
if __name__ == "__main__":
    sys.exit(main(CASES, LONG))
