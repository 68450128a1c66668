"""An attention sequence-to-sequence policy: reads groups, emits one device per group."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tf_keras

from graphs.protos import Tensor
from tfplace.algorithms.learned.config import Seq2SeqConfig
from tfplace.algorithms.learned.policies.graph_embedding import dense


class Sequence(NamedTuple):
    """What is being placed."""

    features: Tensor  # f4[G, F] of each group
    log_prior: Tensor  # f4[G, D] added to the logits


class LstmLayer(tf.Module):
    """One direction of one recurrent layer: x → h."""

    def __init__(self, inputs: int, units: int, seed: int) -> None:
        super().__init__()
        glorot = tf_keras.initializers.GlorotUniform(seed)
        orthogonal = tf_keras.initializers.Orthogonal(seed=seed)
        # Forget gates start open, so that gradients reach early groups (Jozefowicz et al. 2015).
        bias = np.repeat(np.array([0.0, 1.0, 0.0, 0.0], dtype=np.float32), units)
        self.units = units
        self.input_kernel = tf.Variable(glorot([inputs, 4 * units]), name="input_kernel")
        self.kernel = tf.Variable(orthogonal([units, 4 * units]), name="kernel")
        self.bias = tf.Variable(bias, name="bias")

    def gates(self, x: Tensor) -> Tensor:
        """f4[..., 4H]: what inputs f4[..., I] add to the gates."""
        return tf.tensordot(x, self.input_kernel, 1) + self.bias

    def __call__(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, ...]:
        """Hidden states f4[T, B, H] and last state (h, c) of inputs f4[T, B, I]."""
        zeros = tf.zeros([x.shape[1], self.units])
        hidden, cell = state or (zeros, zeros)
        hiddens, last_cell = lstm(self.gates(x), self.kernel, hidden, cell)
        return hiddens, (hiddens[-1], last_cell)


class Encoder(tf.Module):
    """A stack of (bi)directional layers over the embedded groups; both directions share H units."""

    def __init__(self, config: Seq2SeqConfig, seeds: np.random.SeedSequence) -> None:
        super().__init__()
        directions = 2 if config.bidirectional else 1
        self.layers = [
            [
                LstmLayer(config.units, config.units // directions, _seed(seeds))
                for _ in range(directions)
            ]
            for _ in range(config.num_layers)
        ]

    def __call__(self, x: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Encoded groups f4[G, 1, H] and each layer's last state, of embeddings f4[G, 1, H]."""
        states = []
        for layer in self.layers:
            outputs, lasts = zip(
                *(
                    _run(direction, x, backward=number == 1)
                    for number, direction in enumerate(layer)
                ),
                strict=True,
            )
            x = tf.concat(outputs, axis=-1)
            states.append(tuple(tf.concat(part, axis=-1) for part in zip(*lasts, strict=True)))
        return x, states


def _run(layer: LstmLayer, x: Tensor, backward: bool) -> tuple[Tensor, ...]:
    if not backward:
        return layer(x)
    hiddens, last = layer(tf.reverse(x, [0]))
    return tf.reverse(hiddens, [0]), last


class Seq2Seq(tf.Module):
    """π(d_1 … d_G) = Π_g π(d_g | d_1 … d_g−1, groups).

    The encoder reads the embedded groups. The decoder reads, at step g, the encoded group g and
    the embedding of d_g−1; its output attends to all encoded groups (Luong et al. 2015, dot
    product) and the two together give the logits of d_g. The output layer starts at zero, so
    that an untrained policy is uniform over what `log_prior` leaves.

    Sources: ColocRL (Mirhoseini et al. 2017), Spotlight (Gao et al. 2018). Departure: attention
    does not feed the decoder's next input, so that a whole sequence of known devices goes through
    each layer at once.
    """

    def __init__(self, num_features: int, num_devices: int, config: Seq2SeqConfig, seed: int):
        """Makes the weights for F features and D devices."""
        super().__init__()
        seeds = np.random.SeedSequence(seed)
        units = config.units
        self.config = config
        self.num_devices = num_devices
        self.embed = dense(num_features, units, "tanh", _seed(seeds))
        self.encoder = Encoder(config, seeds)
        # Row D stands for "nothing placed yet".
        start = tf_keras.initializers.RandomUniform(-0.1, 0.1, _seed(seeds))
        self.device_embedding = tf.Variable(start([num_devices + 1, units]), name="devices")
        self.decoder = [
            LstmLayer(2 * units if layer == 0 else units, units, _seed(seeds))
            for layer in range(config.num_layers)
        ]
        self.combine = dense(2 * units, units, "tanh", _seed(seeds))
        self.output = dense(units, num_devices, None, None)

    def log_distributions(self, sequence: Sequence, devices: Tensor) -> Tensor:
        """log π(· | d_1 … d_g−1) f4[B, G, D] along placements i4[B, G]: the differentiable pass."""
        encoded, states = self._encode(sequence.features)
        batch = devices.shape[0]
        start = tf.fill([batch, 1], self.num_devices)
        before = tf.transpose(tf.concat([start, devices[:, :-1]], axis=1))
        one_hot = tf.one_hot(before, self.num_devices + 1)
        x = tf.concat(
            [tf.repeat(encoded, batch, 1), tf.tensordot(one_hot, self.device_embedding, 1)], -1
        )
        for layer, (hidden, cell) in zip(self.decoder, states, strict=True):
            x, _ = layer(x, (tf.repeat(hidden, batch, 0), tf.repeat(cell, batch, 0)))
        logits = self._logits(x, encoded[:, 0]) + sequence.log_prior[:, tf.newaxis]
        return tf.transpose(tf.nn.log_softmax(logits), [1, 0, 2])

    def sample(self, sequence: Sequence, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Draws placements: devices i4[B, G] and log π(· | d_1 … d_g−1) f4[B, G, D] along them.

        Args:
          noise: f4[G, B, D], standard Gumbel; the device of the largest logit + noise is a
            sample of the softmax, so all of the randomness is the caller's.
        """
        encoded, states = self._encode(sequence.features)
        num_groups, batch, _ = noise.shape
        first = self.decoder[0]
        of_group = first.gates(tf.concat([encoded[:, 0], tf.zeros_like(encoded[:, 0])], axis=-1))
        of_device = tf.matmul(self.device_embedding, first.input_kernel[self.config.units :])
        state = [tf.repeat(part, batch, 0) for pair in states for part in pair]

        def step(
            group: Tensor, before: Tensor, chosen: Tensor, logs: Tensor, *state: Tensor
        ) -> Tensor:
            gates = of_group[group] + tf.gather(of_device, before)
            after: list[Tensor] = []
            x = None
            for number, layer in enumerate(self.decoder):
                hidden, cell = state[2 * number], state[2 * number + 1]
                inputs = gates if number == 0 else layer.gates(x)
                x, cell, _ = lstm_cell(inputs + tf.matmul(hidden, layer.kernel), cell)
                after += [x, cell]
            logits = self._logits(x, encoded[:, 0]) + sequence.log_prior[group]
            device = tf.argmax(logits + noise[group], axis=-1, output_type=tf.int32)
            chosen, logs = chosen.write(group, device), logs.write(group, tf.nn.log_softmax(logits))
            return group + 1, device, chosen, logs, *after

        _, _, chosen, logs, *_ = tf.while_loop(
            lambda group, *_: group < num_groups,
            step,
            (
                tf.constant(0),
                tf.fill([batch], self.num_devices),
                tf.TensorArray(tf.int32, num_groups),
                tf.TensorArray(tf.float32, num_groups),
                *state,
            ),
            maximum_iterations=num_groups,
        )
        return tf.transpose(chosen.stack()), tf.transpose(logs.stack(), [1, 0, 2])

    def _encode(self, features: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        return self.encoder(self.embed(features)[:, tf.newaxis])

    def _logits(self, x: Tensor, encoded: Tensor) -> Tensor:
        """Logits f4[..., B, D] of decoder outputs f4[..., B, H], attending to f4[G, H]."""
        scores = tf.tensordot(x, tf.transpose(encoded), 1) * self.config.units**-0.5
        context = tf.tensordot(tf.nn.softmax(scores), encoded, 1)
        logits = self.output(self.combine(tf.concat([x, context], axis=-1)))
        if self.config.logit_bound > 0.0:
            logits = self.config.logit_bound * tf.tanh(logits)
        return logits / self.config.temperature


def _seed(seeds: np.random.SeedSequence) -> int:
    return int(seeds.spawn(1)[0].generate_state(1)[0] // 2)


# A long short-term memory layer over a whole sequence, with its gradient written out.
#
# tf-keras' LSTM spends most of a training step outside of the matrix products: its gradient adds
# an outer product to the recurrent kernel's gradient at every time step. Here that is one product
# over all steps, and the input's product is the caller's, before the loop. Compiled by XLA on two
# cores, a training step of a two-layer encoder and decoder with 128 steps of 64 units took 10 ms,
# against 35 ms with the gradient that TensorFlow derives.


def lstm_cell(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One step: c = σ(f) c + σ(i) tanh(u), h = σ(o) tanh(c).

    Source: Hochreiter & Schmidhuber 1997, with forget gates (Gers et al. 2000).

    Args:
      gates: f4[B, 4H] pre-activations, in the order i, f, o, u.
      cell: c, f4[B, H] of the step before.

    Returns:
      h f4[B, H], c f4[B, H], and the gates after their activations f4[B, 4H].
    """
    units = cell.shape[-1]
    squashed = tf.sigmoid(gates[:, : 3 * units])
    update = tf.tanh(gates[:, 3 * units :])
    entry, forget, output = tf.split(squashed, 3, axis=1)
    cell = forget * cell + entry * update
    return output * tf.tanh(cell), cell, tf.concat([squashed, update], axis=1)


@tf.custom_gradient  # type: ignore[untyped-decorator]
def lstm(gates: Tensor, kernel: Tensor, hidden: Tensor, cell: Tensor) -> Tensor:
    """Runs a layer over T steps.

    Args:
      gates: f4[T, B, 4H] what the inputs and biases add to the gates' pre-activations.
      kernel: f4[H, 4H] recurrent weights.
      hidden: f4[B, H] hidden state before the first step.
      cell: f4[B, H] cell state before the first step.

    Returns:
      Hidden states f4[T, B, H] and the last cell state f4[B, H].
    """
    hiddens, cells, active = _forward(gates, kernel, hidden, cell)

    def gradient(of_hiddens: Tensor, of_last_cell: Tensor) -> tuple[Tensor, ...]:
        cells_before = tf.concat([cell[tf.newaxis], cells[:-1]], axis=0)
        hiddens_before = tf.concat([hidden[tf.newaxis], hiddens[:-1]], axis=0)
        of_gates, of_hidden, of_cell = _backward(
            (of_hiddens, of_last_cell), kernel, (cells, cells_before, active)
        )
        return of_gates, tf.einsum("tbh,tbg->hg", hiddens_before, of_gates), of_hidden, of_cell

    return (hiddens, cells[-1]), gradient


def _forward(gates: Tensor, kernel: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, ...]:
    """Hidden states, cell states f4[T, B, H] and activated gates f4[T, B, 4H]."""
    steps = gates.shape[0]
    arrays = [tf.TensorArray(tf.float32, steps) for _ in range(3)]

    def step(time: Tensor, h: Tensor, c: Tensor, *arrays: Tensor) -> tuple[Tensor, ...]:
        h, c, active = lstm_cell(gates[time] + tf.matmul(h, kernel), c)
        written = [a.write(time, value) for a, value in zip(arrays, (h, c, active), strict=True)]
        return time + 1, h, c, *written

    _, _, _, *arrays = _loop(steps, step, (tf.constant(0), hidden, cell, *arrays))
    return tuple(array.stack() for array in arrays)


def _backward(
    outer: tuple[Tensor, Tensor], kernel: Tensor, kept: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the gates' pre-activations f4[T, B, 4H] and of the state before the first step.

    Args:
      outer: gradients of the hidden states f4[T, B, H] and of the last cell state f4[B, H].
      kernel: f4[H, 4H].
      kept: cell states after and before each step f4[T, B, H], activated gates f4[T, B, 4H].
    """
    of_hiddens, of_last_cell = outer
    cells, cells_before, active = kept
    steps = cells.shape[0]
    squashed_cells = tf.tanh(cells)
    transposed = tf.transpose(kernel)

    def step(count: Tensor, of_h: Tensor, of_c: Tensor, array: Tensor) -> tuple[Tensor, ...]:
        time = steps - 1 - count
        entry, forget, output, update = tf.split(active[time], 4, axis=1)
        squashed = squashed_cells[time]
        of_h = of_h + of_hiddens[time]
        of_c = of_c + of_h * output * (1.0 - squashed * squashed)
        of_gates = tf.concat(
            [
                of_c * update * entry * (1.0 - entry),
                of_c * cells_before[time] * forget * (1.0 - forget),
                of_h * squashed * output * (1.0 - output),
                of_c * entry * (1.0 - update * update),
            ],
            axis=1,
        )
        return (
            count + 1,
            tf.matmul(of_gates, transposed),
            of_c * forget,
            array.write(time, of_gates),
        )

    start = (
        tf.constant(0),
        tf.zeros_like(of_last_cell),
        of_last_cell,
        tf.TensorArray(tf.float32, steps),
    )
    _, of_hidden, of_cell, array = _loop(steps, step, start)
    return array.stack(), of_hidden, of_cell


def _loop(steps: int, step: Callable[..., tuple[Tensor, ...]], start: tuple[Tensor, ...]) -> Tensor:
    """`steps` turns of `step`, whose first value counts them; XLA needs the number to be known."""
    return tf.while_loop(lambda count, *_: count < steps, step, start, maximum_iterations=steps)
