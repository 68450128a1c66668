"""Training: weights move, a resumed run is the same run, held-out graphs teach nothing."""

import json
import signal

import numpy as np
import pytest

from graphs.errors import UsageError
from tests.builders import Machine, Op, build_problem
from tfplace.algorithms.learned.training.checkpoint import (
    Recipe,
    algorithm_with_policy,
    placeto_from,
    read_checkpoint,
    write_checkpoint,
)
from tfplace.algorithms.learned.training.training import (
    HeldOut,
    Trainer,
    TrainingLimits,
    geometric_mean,
    num_open,
    train,
)
from tfplace.cli import main
from tfplace.commands.train import TRAINING_FILE


def _two_independent_ops():
    """One device takes 2 seconds, two take 1."""
    return build_problem([Op("a"), Op("b")], Machine(2, types=["GPU", "GPU"]))


def test_training_moves_the_weights_and_says_what_it_reached(trained, recipe, small_config):
    start = Trainer(recipe, None, small_config).weights()
    assert any(not np.array_equal(trained.arrays[name], start[name]) for name in start)
    assert (trained.episodes, trained.recipe) == (4, recipe)
    assert set(trained.held_out) == {"num_tasks", "num_trials", "random", "before", "after"}
    assert trained.held_out["num_tasks"] == 1
    assert 0 < trained.held_out["after"]["best"] <= trained.held_out["after"]["final"]


def test_a_resumed_training_is_the_one_that_never_stopped(trained, recipe, small_config, tmp_path):
    kept = []
    train(recipe, TrainingLimits(3, 600.0), config=small_config, keep=kept.append)
    assert [checkpoint.episodes for checkpoint in kept] == [1, 2, 3]
    path = str(tmp_path / "half.npz")
    write_checkpoint(path, kept[1])  # killed in the third
    rest = train(recipe, TrainingLimits(4, 600.0), read_checkpoint(path), config=small_config)
    assert rest.checkpoint.arrays.keys() == trained.arrays.keys()
    for name, array in trained.arrays.items():
        resumed = rest.checkpoint.arrays[name]
        if array.dtype == np.float32:
            # TensorFlow's sums may differ in the last bit within one process; an update without
            # the optimizer's moments would differ by about the learning rate, 1e-2.
            np.testing.assert_allclose(resumed, array, rtol=1e-4, atol=1e-6)
        else:
            np.testing.assert_array_equal(resumed, array)
    assert rest.checkpoint.held_out["after"] == trained.held_out["after"]


def test_instances_join_one_by_one():
    assert [num_open(episodes, 6) for episodes in (0, 9, 10, 20, 500)] == [4, 4, 5, 6, 6]
    assert num_open(0, 1) == 1


def test_going_on_with_another_recipe_is_refused(trained, small_config):
    other = Recipe("transformer", ("k80x4",), num_graphs=3, seed=5)
    with pytest.raises(UsageError, match="was trained with --clusters=k80x2; "):
        Trainer(other, trained, small_config)


def test_judging_runs_one_episode_and_changes_nothing(trained, small_config):
    instance = HeldOut(_two_independent_ops(), small_config, seed=0)
    before = {name: array.copy() for name, array in trained.arrays.items()}
    first = instance.policy(trained.arrays)
    assert instance.policy(trained.arrays) == first
    assert instance.num_trials == 3
    assert {first.final, first.best, instance.random()} <= {0.5, 1.0}
    for name, array in before.items():
        np.testing.assert_array_equal(trained.arrays[name], array)


def test_a_placement_that_does_not_fit_leaves_no_mean():
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert geometric_mean([0.5, float("inf")]) is None


def test_a_trained_policy_starts_on_another_graph_and_cluster(trained):
    problem = build_problem([Op("a"), Op("b"), Op("c")], Machine(3, types=["GPU"] * 3))
    placeto = placeto_from(trained, problem, seed=0)
    state = placeto.state()
    weights = [name for name in state if name.startswith("policy/")]
    assert weights
    for name in weights:
        np.testing.assert_array_equal(state[name], trained.arrays[name])


def test_a_policy_makes_auto_placeto(trained, tmp_path):
    path = str(tmp_path / "policy.npz")
    write_checkpoint(path, trained)
    name, checkpoint = algorithm_with_policy("auto", path)
    assert name == "placeto" and checkpoint.recipe == trained.recipe
    assert algorithm_with_policy("auto", None) == ("auto", None)


def test_train_then_optimize(recipe, small_config, tiny_rnnlm, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tfplace.algorithms.learned.training.training.CONFIG", small_config)
    path, placed = str(tmp_path / "policy.npz"), str(tmp_path / "placed")
    family = [
        "--family=transformer",
        "--clusters=k80x2",
        "--num_graphs=3",
        "--seed=5",
        "--episodes=1",
    ]
    folder = tmp_path / "deep" / "kept"
    family.append(f"--checkpoint_dir={folder}")
    assert main(["train", f"--output={path}", *family, "--format=json"]) == 0
    captured = capsys.readouterr()
    assert read_checkpoint(str(folder / TRAINING_FILE)).episodes == 1
    assert read_checkpoint(path).episodes == 1
    facts = json.loads(captured.out)
    assert (facts["episodes"], facts["interrupted"]) == (1, False)
    words = ["--cluster=k80x4", "--max_trials=3", "--budget_seconds=5", "--format=json"]
    done = main(["optimize", tiny_rnnlm, f"--policy={path}", f"--output_dir={placed}", *words])
    report = json.loads(capsys.readouterr().out)
    assert done == 0
    assert (report["algorithm"], report["search"]["num_trials"]) == ("placeto", 3)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], "wanted FILE.npz"),
        (["--output=p.npz", "--family=vgg"], "no such family"),
        (["--output=p.npz", "--num_graphs=3", "--clusters="], "--clusters"),
    ],
)
def test_usage_errors(words, found, capsys):
    assert main(["train", *words]) == 1
    assert found in capsys.readouterr().err


def test_ctrl_c_after_some_episodes_keeps_what_was_trained(recipe, small_config):
    def press(checkpoint):
        if checkpoint.episodes == 2:
            signal.raise_signal(signal.SIGINT)

    result = train(recipe, TrainingLimits(50, 1e9), config=small_config, keep=press)
    assert result.interrupted
    assert result.checkpoint.episodes == 2
    assert result.checkpoint.held_out["after"] is None
    assert result.checkpoint.held_out["before"] is not None


def test_ctrl_c_before_the_first_episode_has_nothing_to_keep(recipe, small_config):
    with pytest.raises(KeyboardInterrupt):
        train(
            recipe,
            TrainingLimits(1, 1e9),
            tell=lambda sentence: signal.raise_signal(signal.SIGINT),
            config=small_config,
        )
