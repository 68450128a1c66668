"""The recipe for a model of one's own, as it is printed, and with a layer that draws."""

import pytest
import tensorflow as tf

from graphs.loading.load import load
from tests.documents import DOCS, blocks

(RECIPE,) = blocks(DOCS / "your_model.md", "python")
LAST = "keras.layers.Dense(10)"
SEEDS = "trained.seeds ="


def run(recipe):
    exec(compile(recipe, "your_model.md", "exec"), {})
    assert load("my_model").step_origin == "signature train_step"
    step = tf.saved_model.load("my_model").signatures["train_step"]
    return [float(step(x=tf.ones((32, 64)), y=tf.ones(32, tf.int64))["loss"]) for _ in range(3)]


@pytest.mark.parametrize("layers", [LAST, f"keras.layers.Dropout(0.5), {LAST}"])
def test_it_saves_a_step_that_trains(layers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert RECIPE.count(LAST) == 1
    losses = run(RECIPE.replace(LAST, layers).replace("4096", "64"))
    assert losses[2] < losses[0]


def test_the_line_about_seeds_is_needed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [line for line in RECIPE.splitlines() if not line.startswith(SEEDS)]
    assert len(lines) == len(RECIPE.splitlines()) - 1
    without = "\n".join(lines).replace(LAST, f"keras.layers.Dropout(0.5), {LAST}")
    with pytest.raises(AssertionError, match=r"untracked.*resource"):
        run(without)
