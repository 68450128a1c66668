"""Tests of tfplace.commands.from_flags: words of flags as what they mean, or one line."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs.errors import UsageError
from tfplace.cli import main
from tfplace.commands.from_flags import (
    given_flags,
    load_options,
    optimize_options,
    problem_options,
    split_names,
    whole_numbers,
)
from tfplace.commands.parse import parse

NAMES = st.from_regex(r"[a-z0-9_./]+", fullmatch=True)
OPTIONS = st.lists(st.from_regex(r"[a-z_]+=[a-z0-9]+", fullmatch=True), min_size=1, max_size=3)
MODELS = st.one_of(NAMES, st.builds(lambda n, o: f"{n}:{','.join(o)}", NAMES, OPTIONS))


def values_of(command, *words):
    return parse(command, words)[1]


@given(st.lists(MODELS, min_size=1, max_size=4))
def test_names_are_split_between_models_not_between_options(models):
    assert split_names(",".join(models), "--models") == models
    assert split_names(" , ".join(models) + ",", "--models") == models


@pytest.mark.parametrize("text", ["", ",", " , "])
def test_no_names_are_an_error(text):
    with pytest.raises(UsageError, match="reading --seeds: found nothing; wanted names"):
        split_names(text, "--seeds")


def test_whole_numbers():
    assert whole_numbers(["0", "12"], "--seeds") == [0, 12]
    for word in ("a", "-1", "1.5", "", "²"):
        with pytest.raises(UsageError, match=f"reading --seeds: '{word}' is no whole number"):
            whole_numbers([word], "--seeds")


def test_superscript_seeds_are_a_usage_error(capsys):
    assert main(["bench", "--output=x.json", "--seeds=²"]) == 1
    assert "'²' is no whole number" in capsys.readouterr().err


def test_given_flags_say_the_same_again(tmp_path):
    file = tmp_path / "flags"
    file.write_text("--seed=3\n--pin=a b=/device:GPU:0\n")
    words = [f"--flagfile={file}", "--pin=c=/device:GPU:1", "--nocost_cache", "--max_trials=7"]
    values = values_of("optimize", "m.pb", *words)
    again = given_flags(values)
    assert sorted(again) == [
        "--max_trials=7", "--nocost_cache", "--pin=a b=/device:GPU:0", "--pin=c=/device:GPU:1",
        "--seed=3",
    ]  # fmt: skip
    said_again = values_of("optimize", "m.pb", *again)
    assert said_again.flag_values_dict() == values.flag_values_dict()
    assert "--seed=3" not in given_flags(values, without=("seed", "pin"))
    command = optimize_options("m.pb", values).command
    assert shlex.split(command) == ["tfplace", "optimize", "m.pb", *again]


def test_input_shapes():
    values = values_of("inspect", "m.pb", "--input_shape=a=b:0=2,3", "--input_shape=scalar=")
    assert load_options(values).input_shape == {"a=b:0": (2, 3), "scalar": ()}


@pytest.mark.parametrize("text", ["x", "=2", "x=2,b", "x=2.5"])
def test_a_shape_that_is_none_is_told(text):
    with pytest.raises(UsageError, match=f"reading --input_shape={text}: wanted NAME=2,3 with"):
        load_options(values_of("inspect", "m.pb", f"--input_shape={text}"))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("saved_model,graphdef", "there is no form 'graphdef'; did you mean 'graph_def'"),
        (" , ", "wanted one or more of saved_model"),
    ],
)
def test_forms_to_emit(text, error):
    assert optimize_options("m", values_of("optimize", "m", "--emit=cleared, graph_def")).emit == {
        "cleared", "graph_def"
    }  # fmt: skip
    with pytest.raises(UsageError, match=error):
        optimize_options("m", values_of("optimize", "m", f"--emit={text}"))


def test_a_batch_axis_of_a_step_that_stays_whole_is_told():
    with pytest.raises(UsageError, match="--shards=1, which leaves it whole; give --shards a numb"):
        problem_options("m", values_of("inspect", "m", "--batch_axis=x=0"))
    for words in (["simulate", "m", "--shards=2"], ["optimize", "m"]):  # may split it unasked
        options = problem_options("m", values_of(*words, "--batch_axis=x=0"), words[0][0] == "o")
        assert options.batch_axes == {"x": 0}
