"""The models that the loop is judged by, at sizes that fit a minute on two cores."""

from __future__ import annotations

import dataclasses

from tests.rival.models import MODELS


@dataclasses.dataclass(frozen=True)
class Row:
    """One model.

    Attributes:
      says: what it is, in a few words.
      making: the arguments of `python -m` that write it to the path that follows them.
      file: its name in the folder.
    """

    says: str
    making: tuple[str, ...]
    file: str


def _graph(says: str, *words: str) -> Row:
    return Row(says, ("tfplace", "graph", *words, "--verbosity=-1", "--output"), "model.pb")


ROWS = {
    "rnnlm": _graph(
        "rnnlm, 256 wide, 20 steps, 5,000 words, batch 32",
        *("rnnlm", "--hidden_size=256", "--num_steps=20", "--vocab_size=5000", "--batch_size=32"),
    ),
    "nmt": _graph(
        "nmt, 2 layers, 384 wide, 10 steps, 2,000 words, batch 32",
        *("nmt", "--num_layers=2", "--hidden_size=384", "--num_steps=10", "--vocab_size=2000"),
        "--batch_size=32",
    ),
    "inception_v3": _graph("inception_v3, batch 2", "inception_v3", "--batch_size=2"),
    "small_ops": _graph(
        "rnnlm, 4 layers, 256 wide, 40 steps, 2,000 words, batch 16",
        *("rnnlm", "--num_layers=4", "--hidden_size=256", "--num_steps=40", "--vocab_size=2000"),
        "--batch_size=16",
    ),
    "cnn": Row(MODELS["cnn"].says, ("tests.rival.save_model", "cnn"), "model"),
    "tiny": _graph(
        "rnnlm, 8 wide, 3 steps: for tests",
        *("rnnlm", "--size=tiny", "--hidden_size=8", "--num_steps=3", "--vocab_size=20"),
    ),
}
"""What can be judged, by name."""
JUDGED = ("rnnlm", "nmt", "inception_v3", "small_ops", "cnn")
"""What is judged unless others are named."""
