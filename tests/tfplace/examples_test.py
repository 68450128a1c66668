"""Every example that `--help`, README.md and its pages print is a command that works.

Those that start processes or search for long run by hand, with smaller budgets:
`pytest -m examples tests/tfplace/examples_test.py`; what needs other hosts is only parsed.
"""

import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from graphs import zoo
from graphs.problem_file import write_problem
from tests.builders import two_towers
from tests.documents import DOCS, README, blocks, commands
from tfplace.cli import main
from tfplace.commands.command_table import COMMANDS
from tfplace.commands.parse import parse

PAGES = (
    README,
    *(DOCS / f"{name}.md" for name in ("your_model", "clusters", "batch", "multiple_hosts")),
)
ELSEWHERE = ("tf_config", "two_hosts.json", "--executor=ray")
IN_PROCESS = ("cache", "check", "devices", "graph", "inspect", "simulate")
SMALLER = {  # appended: the last of equal flags counts
    "optimize": ["--max_trials=3", "--budget_seconds=2"],
    "measure": ["--steps=2", "--budget_seconds=2", "--nomemory"],
    "graph": ["--size=tiny"],
    "bench": ["--models=cifar10:size=tiny", "--max_trials=2", "--algorithms=random", "--seeds=1"],
    "train": ["--num_graphs=2", "--episodes=1", "--budget_seconds=5"],
    "calibrate": ["--budget_seconds=3"],
    "solve": ["--budget_seconds=1", "--overwrite"],
    "fidelity": ["--placements=2", "--rounds=1", "--trace=0"],
}


SHOWN = [command for page in PAGES for command in commands(page)]
EXAMPLES = list(dict.fromkeys([e for c in COMMANDS.values() for e in c.examples] + SHOWN))


def marked(example):
    name = example.split()[1]
    return pytest.param(example, marks=() if name in IN_PROCESS else pytest.mark.examples)


def test_commands_are_found_in_the_pages():
    assert {example.split()[1] for example in SHOWN} == {
        "graph",
        "inspect",
        "optimize",
        "devices",
        "calibrate",
        "bench",
        "batch",
    }


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_has_flags_and_arguments_that_there_are(example):
    program, name, *words = shlex.split(example)
    assert program == "tfplace"
    arguments, values = parse(name, words)
    assert len(arguments) == bool(COMMANDS[name].argument)
    assert values.format in ("text", "json")


@pytest.fixture(scope="module")
def things(tmp_path_factory):
    """A folder with everything that the examples read, tiny."""
    folder = tmp_path_factory.mktemp("things")
    built = zoo.build("rnnlm", size="tiny")
    for name in ("model.pb", "rnnlm.pb"):
        zoo.write(built, str(folder / name))
    zoo.write(zoo.build("cifar10", size="tiny"), str(folder / "saved_model_dir"))
    for name in ("placed_dir", "my_model"):
        shutil.copytree(folder / "saved_model_dir", folder / name)
    write_problem(str(folder / "problem.npz"), two_towers(), np.zeros(9, np.int32))
    (folder / "placement.json").write_text(json.dumps({"loss": "/device:CPU:0"}))
    box, tower, _ = blocks(DOCS / "clusters.md", "json")
    (folder / "box.json").write_text(box)
    (folder / "tower.json").write_text(tower)
    shutil.copy(folder / "box.json", folder / "workers2.json")
    (folder / "jobs.txt").write_text("simulate model.pb --cluster=k80x2\n")
    return folder


@pytest.mark.parametrize("example", [*map(marked, EXAMPLES)])
def test_an_example_runs_as_printed(example, things, tmp_path, monkeypatch, capfd):
    if any(word in example for word in ELSEWHERE):
        pytest.skip("it needs other hosts")
    _, name, *words = shlex.split(example)
    monkeypatch.setenv("TFPLACE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    if name != "graph":
        shutil.copytree(things, tmp_path, dirs_exist_ok=True)
    if name == "calibrate":
        Path("workers2.json").unlink()
    if "workers:2" in example:
        Path("placement.json").write_text(json.dumps({"loss": "/job:worker/task:1/device:CPU:0"}))
    if any("workers2.json" in word for word in words) and name == "fidelity":
        assert main(["calibrate", "--cluster=workers:2", "--budget_seconds=3", "--overwrite",
                     "--output=workers2.json"]) == 0  # fmt: skip
    if "demo/" in example:
        Path("demo").mkdir()
        shutil.copy(things / "rnnlm.pb", "demo")
    status = main([name, *words, *SMALLER.get(name, [])])
    told = capfd.readouterr().err
    assert (status, told.count("tfplace: error")) == (0, 0), told
