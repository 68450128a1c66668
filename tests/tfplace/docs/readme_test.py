"""README from top to bottom, as it is printed, in a fresh folder; and what it claims.

What takes minutes is left out by name: `make`, which installs and does all of this, and the blocks
in BY_HAND, which run with `pytest -m examples`.
"""

import re
import shlex

import keras
import pytest
import tensorflow as tf

from graphs import errors
from tests.documents import README, ROOT, blocks
from tfplace.algorithms.table import names
from tfplace.cli import main
from tfplace.commands import outcome
from tfplace.commands.command_table import COMMANDS
from tfplace.report.report import Report

TEXT = README.read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
SHOWN_ONLY = ("make ", "measured ")  # the first words of what installs, and of what was printed
BY_HAND = ("tfplace graph rnnlm --hidden_size=512", "tfplace calibrate")


def commands(block):
    return [shlex.split(line, comments=True) for line in block.replace("\\\n", " ").splitlines()]


def is_run(block):
    return not block.startswith((*SHOWN_ONLY, *BY_HAND))


def test_every_block_runs_as_printed_one_after_the_other(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    keras.utils.set_random_seed(0)
    ran, known = [], {}
    for language, block in BLOCKS:
        if not is_run(block):
            continue
        if language == "python":
            exec(compile(block, "README.md", "exec"), known)
        for program, *words in commands(block) if not language else ():
            assert (program, main(words)) == ("tfplace", 0)
            ran.append((words, capfd.readouterr().out))
    _require_claims(ran, known, tmp_path)


def _require_claims(ran, known, folder):
    (inspected, said), (_, local), (_, elsewhere) = ran
    assert inspected[0] == "inspect" and re.search(r"^run +\w", said, re.M)
    assert "tfplace.load('my_model_placed')" in local and "tfplace.load('for_k80x4')" in elsewhere
    assert isinstance(known["step"].report, Report) and "loss" in known["logs"]
    named = re.findall(r"`((?:report|placement|timeline)\.\w+)`", TEXT)
    assert len(set(named)) == 4
    for placed in ("my_model_placed", "for_k80x4"):
        found = {path.name for path in (folder / placed / "assets.extra" / "tfplace").iterdir()}
        assert found == set(named)
    plain = tf.saved_model.load("my_model_placed").signatures["serving_default"](tf.ones((8, 32)))
    for key, value in known["outputs"].items():
        tf.debugging.assert_near(plain[key], value)


@pytest.mark.examples
def test_the_blocks_that_take_minutes_run_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()
    known = {}
    for language, block in BLOCKS:
        if language == "python" and "model.export" in block:
            exec(compile(block, "README.md", "exec"), known)
    for start in BY_HAND:
        (block,) = [block for _, block in BLOCKS if block.startswith(start)]
        for _, *words in commands(block):
            assert main(words) == 0


def test_each_block_is_run_or_left_out_by_name():
    left_out = [block for _, block in BLOCKS if not is_run(block)]
    assert len(left_out) == len(SHOWN_ONLY) + len(BY_HAND)
    assert blocks(README, "") and {language for language, _ in BLOCKS} == {"", "python"}


def test_make_demo_runs_the_two_commands_that_are_shown():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    recipe = re.findall(r"^\t\$\(BIN\)/(tfplace .*)$", makefile, re.M)
    (shown,) = [block for _, block in BLOCKS if block.startswith(BY_HAND[0])]
    assert [shlex.split(command) for command in recipe] == commands(shown)
    assert re.findall(r"^make (\w+)", BLOCKS[0][1], re.M) == ["demo", "test"]


def test_every_command_stands_in_the_table():
    shown = re.findall(r"^\| `tfplace (\w+)", TEXT, re.M)
    assert sorted(shown) == sorted(COMMANDS)


def test_every_algorithm_is_named():
    sentence = TEXT[TEXT.index("`--algorithm` is") :].partition("\n\n")[0]
    assert set(re.findall(r"`([a-z_]+)`", sentence)) == set(names())


def test_exit_statuses_mean_what_is_said():
    sentence = " ".join(TEXT[TEXT.index("Exit status:") :].partition("\n\n")[0].split())
    said = [(int(status), words) for status, words in re.findall(r"(\d+) ([a-z ]*[a-z])", sentence)]
    kinds = {
        "usage": {errors.UsageError.exit_status, outcome.EXIT_USAGE},
        "bad input": {errors.ModelError.exit_status, outcome.EXIT_BAD_INPUT},
        "nothing fits the memory": {errors.MemoryLimitError.exit_status},
        "contradictory constraints": {errors.ConstraintError.exit_status},
        "interrupted": {outcome.EXIT_INTERRUPTED},
        "a defect of tfplace": {errors.VerificationError.exit_status, outcome.EXIT_DEFECT},
    }
    for words, statuses in kinds.items():
        assert {status for status, text in said if text == words} == statuses
