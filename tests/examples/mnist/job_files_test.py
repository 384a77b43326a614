#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""The files of examples/jobs, run with train_mnist; and a job file as users of Azure Batch AI have it, with another
program.

usage: job_files_test.py BIN_DIR [CASE...]
"""

import difflib
import json
import os
import pathlib
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../launcher/jobs/run"))

from jobs_here import Jobs  # noqa: E402
from outside import main  # noqa: E402

EXAMPLES = pathlib.Path(HERE, "../../../examples/jobs").resolve()
RECIPES = pathlib.Path(HERE, "../../launcher/jobs/file/recipes").resolve()
REFUSED = {"brain_script.json", "brain_script_distributed.json", "tensorflow_servers.json"}
# Short ones; the files themselves train for five epochs.
SHORT = ["--epoch", "1", "--unit", "20", "--dataset", "fashion_mnist"]


def shorter(words):
    return [*words[:1], *SHORT, *words[words.index("--out"):]] if isinstance(words, list) else \
        " ".join([*SHORT, words[words.index("--out"):]])


def the_old_form_trains(bin_dir):
    launcher = str(bin_dir / "launcher")
    with Jobs(launcher, ["n1 slots=2", "n2 slots=2"]) as jobs:
        job = json.loads((EXAMPLES / "mnist_batch_ai.json").read_text())
        settings = job["properties"]["chainmailSettings"]
        settings["commandLineArgs"] = shorter(settings["commandLineArgs"])
        job["properties"]["nodeCount"] = 2
        (jobs.folder / "external").mkdir()
        mounts = ["--mount", f"external={jobs.folder}/external", "--mount", f"programs={bin_dir}"]
        path = jobs.write(job, "mnist.json")
        unmapped = jobs.run("job", "check", path)
        assert unmapped.returncode == 2 and "--mount external=" in unmapped.stderr, unmapped
        assert jobs.run("job", "check", path, *mounts).returncode == 0
        done = jobs.run("--job", path, *jobs.of_hosts(), *mounts, seconds=200)
        assert done.returncode == 0, done.stderr
        assert "Num process (COMM_WORLD): 2" in done.stdout, done.stdout
        state = jobs.state(*jobs.jobs())
        run = pathlib.Path("jobs", "mnist", state["uuid"])
        external = jobs.folder / "external"
        assert (external / "logs" / run / "stdout.txt").read_text() == done.stdout
        for name in ("stderr.txt", "execution.log"): assert (external / "logs" / run / name).is_file(), name
        assert (external / "results" / run / "model" / "log").is_file()
        listed = jobs.run("ls", "mnist", "MODEL")
        assert "log" in listed.stdout.split(), listed
        jobs.leaves_nothing()


def the_modern_form_trains(bin_dir):
    launcher = str(bin_dir / "launcher")
    with Jobs(launcher) as jobs:
        text = (EXAMPLES / "mnist.json").read_text()
        words = ["train_mnist", "--epoch", "5", "--out", "${output.MODEL}"]
        shown = ", ".join(json.dumps(word) for word in words)
        assert f'"program": [{shown}]' in text
        short = ", ".join(json.dumps(word) for word in shorter(words))
        path = jobs.folder / "mnist.json"
        path.write_text(text.replace(shown, short))
        environment = {"PATH": f"{bin_dir}:{os.environ['PATH']}"}
        done = jobs.run("--job", path, seconds=200, environment=environment)
        assert done.returncode == 0, done.stderr
        assert "Num process (COMM_WORLD): 2" in done.stdout, done.stdout
        state = jobs.state(*jobs.jobs())
        run = pathlib.Path("jobs", "mnist", state["uuid"])
        assert (jobs.folder / "results" / run / "model" / "log").is_file()
        assert (jobs.folder / "logs" / run / "stdout.txt").read_text() == done.stdout
        jobs.leaves_nothing()


def mount_options(jobs, path):
    """A folder for each mount that the file wants."""
    missing = jobs.run("job", "check", path)
    assert missing.returncode in (0, 2), missing
    options = []
    for word in missing.stderr.replace("'", " ").replace(",", " ").split():
        name, equals, _ = word.partition("=DIR")
        if not equals or name in options: continue
        folder = jobs.folder / "mounted" / name
        folder.mkdir(parents=True, exist_ok=True)
        options += [name]
    return [word for name in options for word in ("--mount", f"{name}={jobs.folder}/mounted/{name}")]


def recipes_convert_to_the_same_plan(bin_dir):
    launcher = str(bin_dir / "launcher")
    names = sorted(path.name for path in RECIPES.glob("*.json"))
    assert len(names) == 15, names
    with Jobs(launcher, [f"n{i} slots=8" for i in range(8)]) as jobs:
        for name in names:
            path = jobs.folder / name
            shutil.copy(RECIPES / name, path)
            mounts = mount_options(jobs, path)
            if "valueSecretReference" in path.read_text():
                (jobs.folder / "key").write_text("of a vault")
                mounts += ["--secret", f"STORE_KEY=@{jobs.folder}/key"]
            checked = jobs.run("job", "check", path, *mounts)
            if name in REFUSED:
                assert checked.returncode == 2, f"{name}: {checked}"
                continue
            assert checked.returncode == 0, f"{name}: {checked}"
            plan = jobs.run("--job", path, *jobs.of_hosts(), *mounts, "--dry-run", "--json")
            assert plan.returncode == 0, f"{name}: {plan}"
            converted = jobs.run("job", "convert", path, *mounts)
            assert converted.returncode == 0, f"{name}: {converted}"
            modern = jobs.folder / f"modern_{name}"
            modern.write_text(converted.stdout)
            # Values of secrets do not get into a converted file.
            again = jobs.run("--job", modern, *jobs.of_hosts(), *mounts, "--dry-run", "--json",
                             environment={"WANDB_API_KEY": "of the user"})
            assert again.returncode == 0, f"{name}: {again}"
            other = "".join(difflib.unified_diff(plan.stdout.splitlines(True), again.stdout.splitlines(True), "old",
                                                 "converted", n=0))
            assert json.loads(again.stdout) == json.loads(plan.stdout), f"{name}: {other}"
        print(f"{len(names) - len(REFUSED)} of {len(names)} recipes convert to the same plan", flush=True)


CASES = [the_old_form_trains, the_modern_form_trains, recipes_convert_to_the_same_plan]

if __name__ == "__main__":
    class Given:
        given = [pathlib.Path(sys.argv[1]).resolve()]
        cases = sys.argv[2:]
    sys.exit(main(CASES, Given))
