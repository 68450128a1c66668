"""What weights in pieces would gain: recurrent graphs whose LSTMs and softmax are cut by hand.

Each LSTM's kernel is cut by units, the softmax's by words, every piece a variable of its own; the
states are put together at each time step, of the softmax only two sums are. A part of the network
has a block of GPUs, one for each piece; everything whole lies on the block's first one.

`python -m tests.tables.pieces_by_hand` prints the simulated step of each row on v100x8.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import tensorflow as tf

from graphs.loading.load_options import LoadOptions
from graphs.protos import Tensor
from graphs.zoo import nmt, recurrent, rnnlm
from graphs.zoo.network import Network
from tfplace.choosing.scheduling.list_schedules import ordered
from tfplace.cli import main as tfplace
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import completed, prepare

CLUSTER = "v100x8"


@dataclasses.dataclass(frozen=True)
class Row:
    """A graph cut into pieces.

    Attributes:
      graph: of the zoo, with its flags.
      of_lstm, of_softmax: how many pieces these have.
      blocks: regular expressions of op names: which part has which block of GPUs.
      size: GPUs of a block.
    """

    graph: Sequence[str]
    of_lstm: int
    of_softmax: int
    blocks: Sequence[str]
    size: int


ROWS = (
    Row(("rnnlm",), 1, 8, ("lstm_0", "lstm_1", "softmax"), 1),
    Row(("rnnlm",), 4, 4, ("lstm_0|embedding", "lstm_1|softmax"), 4),
    Row(("rnnlm",), 4, 4, ("",), 4),
    Row(
        ("nmt", "--num_layers=4"), 2, 2,
        ("encoder_0|source_emb", "encoder_1|decoder_0|target_emb", "decoder_1",
         "attention|softmax"), 2,
    ),
)  # fmt: skip


def softmax_loss(num_pieces: int) -> Callable[..., Tensor]:
    """`recurrent.softmax_loss` with its kernel in pieces."""

    def loss(network: Network, states: Sequence[Tensor], targets: Tensor, vocab: int) -> Tensor:
        rows, bounds = states[0].shape[1], [vocab * k // num_pieces for k in range(num_pieces + 1)]
        pieces = []
        for k, (low, high) in enumerate(itertools.pairwise(bounds)):
            with tf.name_scope(f"piece_{k}"):
                kernel = network.weights("kernel", [rows, high - low], 1 / math.sqrt(rows))
                pieces.append((low, kernel, network.constant_weights("bias", [high - low])))
        losses = []
        for step, labels in enumerate(tf.unstack(targets, axis=1)):
            with tf.name_scope(f"step_{step}"):
                losses.append(_loss_of_step(states[step], labels, pieces))
        return tf.add_n(losses)

    return loss


def _loss_of_step(
    state: Tensor, labels: Tensor, pieces: Sequence[tuple[int, Tensor, Tensor]]
) -> Tensor:
    logits, tops, sums, picked = [], [], [], []
    for k, (_, kernel, bias) in enumerate(pieces):
        with tf.name_scope(f"piece_{k}"):
            logits.append(tf.nn.bias_add(tf.matmul(state, kernel), bias))
            tops.append(tf.reduce_max(tf.stop_gradient(logits[-1]), 1))
    top = tf.reduce_max(tf.stack(tops), 0)
    for k, (low, kernel, _) in enumerate(pieces):
        with tf.name_scope(f"piece_{k}"):
            shifted = logits[k] - top[:, None]
            sums.append(tf.reduce_sum(tf.exp(shifted), 1))
            picked.append(tf.reduce_sum(shifted * tf.one_hot(labels - low, kernel.shape[1]), 1))
    return tf.reduce_mean(tf.math.log(tf.add_n(sums)) - tf.add_n(picked))


def lstm_cell(num_pieces: int) -> type:
    """`recurrent.LstmCell` with its kernel in pieces of units."""

    class Cell:
        def __init__(self, network: Network, input_size: int, hidden_size: int) -> None:
            rows, self._width = input_size + hidden_size, hidden_size // num_pieces
            self._pieces = []
            for k in range(num_pieces):
                with tf.name_scope(f"piece_{k}"):
                    shape = [rows, 4 * self._width]
                    kernel = network.weights("kernel", shape, 1 / math.sqrt(rows))
                    self._pieces.append((kernel, network.constant_weights("bias", shape[1:])))

        def zero_state(self, batch_size: int) -> tuple[list[Tensor], Tensor]:
            zeros = [tf.zeros([batch_size, self._width]) for _ in self._pieces]
            return zeros, tf.concat(zeros, 1)

        def __call__(
            self, inputs: Sequence[Tensor], state: tuple[list[Tensor], Tensor]
        ) -> tuple[list[Tensor], Tensor]:
            cells, whole = [], []
            x = tf.concat([*inputs, state[1]], 1)
            for k, (kernel, bias) in enumerate(self._pieces):
                with tf.name_scope(f"piece_{k}"):
                    z = tf.nn.bias_add(tf.matmul(x, kernel), bias)
                    i, j, f, o = tf.split(z, 4, axis=1)
                    c = state[0][k] * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
                    cells.append(c)
                    whole.append(tf.tanh(c) * tf.sigmoid(o))
            return cells, tf.concat(whole, 1)

    return Cell


@contextlib.contextmanager
def _cut(row: Row) -> Iterator[None]:
    """The zoo's recurrent graphs are built in pieces meanwhile."""
    made: dict[str, object] = {}
    if row.of_softmax > 1:
        made["softmax_loss"] = softmax_loss(row.of_softmax)
    if row.of_lstm > 1:
        made["LstmCell"] = lstm_cell(row.of_lstm)
    with contextlib.ExitStack() as stack:
        for module in (recurrent, rnnlm, nmt):
            for name in made.keys() & vars(module).keys():
                stack.enter_context(mock.patch.object(module, name, made[name]))
        yield


def seconds(row: Row) -> tuple[float, float]:
    """Of the simulated step: first come, first served, and in the best order that is found."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "graph.pb")
        with _cut(row):
            tfplace(["graph", *row.graph, f"--output={path}", "--verbosity=-1"])
        prepared = prepare(ProblemOptions(path, LoadOptions(), cluster=CLUSTER), trace=False)
    problem = prepared.problem
    gpus = [d for d, kind in enumerate(problem.device_types) if kind == "GPU"]

    def device(name: str) -> int:
        block = next((k for k, part in enumerate(row.blocks) if re.search(part, name)), 0)
        piece = re.findall(r"piece_(\d+)", name)
        return gpus[(row.size * block + int(piece[-1] if piece else 0)) % len(gpus)]

    wanted = np.array([device(name) for name in problem.graph.op_names], dtype=np.int32)
    placement = completed(wanted, problem.allowed(), problem.graph.colocation_group)
    found = ordered(problem, placement)
    return found.without.step_seconds, found.outcome.step_seconds


def main() -> None:
    """Prints a line for each row."""
    for row in ROWS:
        without, best = seconds(row)
        print(
            f"{' '.join(row.graph)}: LSTMs in {row.of_lstm}, softmax in {row.of_softmax}, blocks "
            f"of {row.size}: {1e3 * without:.1f} ms, in order {1e3 * best:.1f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()
