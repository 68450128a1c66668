"""The networks' pieces against their formulas, computed with NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graphs.zoo import attention, moe, nmt, recurrent
from graphs.zoo.dlrm import interactions
from graphs.zoo.network import Network


def _run(
    make: Callable[[Network], list[Any]], seed: int = 0
) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """Builds ops, gives all variables normal values; returns the ops' values and those."""
    network = Network(2)
    with network.graph.as_default():
        fetches = make(network)
        variables = tf.compat.v1.global_variables()
    generator = np.random.default_rng(seed)
    with tf.compat.v1.Session(graph=network.graph) as session:
        values = {}
        for variable in variables:
            name = variable.name.removesuffix(":0")
            values[name] = generator.standard_normal(variable.shape).astype(np.float32)
            variable.load(values[name], session)
        return session.run(fetches), values


def _array(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def test_lstm_cell() -> None:
    x, y, c, h = _array(2, 3), _array(2, 1, seed=2), _array(2, 4, seed=3), _array(2, 4, seed=4)
    (new_c, new_h), values = _run(
        lambda network: list(recurrent.LstmCell(network, 4, 4)([x, y], (c, h)))
    )
    z = np.concatenate([x, y, h], 1) @ values["kernel"] + values["bias"]
    i, j, f, o = np.split(z, 4, axis=1)
    wanted = c * _sigmoid(f + 1) + _sigmoid(i) * np.tanh(j)
    np.testing.assert_allclose(new_c, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(new_h, np.tanh(wanted) * _sigmoid(o), rtol=1e-4, atol=1e-5)


def test_softmax_loss_is_the_sum_over_steps_of_the_mean_over_the_batch() -> None:
    states = [_array(2, 3), _array(2, 3, seed=5)]
    labels = np.array([[4, 0], [1, 2]], np.int32)  # of each step
    (loss,), values = _run(
        lambda network: [recurrent.softmax_loss(network, states, labels.T, vocab_size=5)]
    )
    means = [
        -np.log(_softmax(x @ values["kernel"] + values["bias"])[[0, 1], y]).mean()
        for x, y in zip(states, labels, strict=True)
    ]
    np.testing.assert_allclose(loss, sum(means), rtol=1e-4)


@pytest.mark.parametrize("is_residual", [False, True])
def test_an_lstm_layer_hands_its_state_from_step_to_step(is_residual: bool) -> None:
    steps = [_array(2, 4), _array(2, 4, seed=2)]
    (first, second), values = _run(
        lambda network: list(recurrent.lstm_layer(network, steps, 4, is_residual))
    )
    c = h = np.zeros((2, 4))
    for x, output in zip(steps, (first, second), strict=True):
        z = np.concatenate([x, h], 1) @ values["kernel"] + values["bias"]
        i, j, f, o = np.split(z, 4, axis=1)
        c = c * _sigmoid(f + 1) + _sigmoid(i) * np.tanh(j)
        h = np.tanh(c) * _sigmoid(o)
        np.testing.assert_allclose(output, h + x * is_residual, rtol=1e-4, atol=1e-5)


def test_additive_attention() -> None:
    states = [_array(2, 4, seed=seed) for seed in (1, 2, 3)]
    query = _array(2, 4, seed=4)
    (context,), values = _run(lambda network: [nmt.Attention(network, states, 4)(query)])
    memory = np.stack(states, 1)
    hidden = np.tanh((query @ values["query_kernel"])[:, None] + memory @ values["memory_kernel"])
    weights = _softmax((hidden @ values["score_kernel"])[..., 0])
    np.testing.assert_allclose(
        context, np.einsum("bs,bsh->bh", weights, memory), rtol=1e-4, atol=1e-5
    )


def test_self_attention_with_two_heads() -> None:
    batch_size, num_steps, width = 2, 3, attention.HEAD_SIZE
    states = _array(batch_size * num_steps, 2 * width) / 8
    bias = np.where(np.tri(num_steps), 0, -1e4).astype(np.float32)
    (outputs,), values = _run(
        lambda network: [attention.self_attention(network, tf.constant(states), bias, batch_size)]
    )

    def projected(name: str, inputs: np.ndarray) -> np.ndarray:
        return inputs @ values[f"{name}/kernel"] + values[f"{name}/bias"]

    shape = (batch_size, num_steps, 2, width)
    query, key, value = (projected(n, states).reshape(shape) for n in ("query", "key", "value"))
    scores = np.einsum("bshd,bthd->bhst", query, key) / np.sqrt(width)
    context = np.einsum("bhst,bthd->bshd", _softmax(scores + bias), value)
    wanted = projected("output", context.reshape(-1, 2 * width))
    np.testing.assert_allclose(outputs, wanted, rtol=1e-3, atol=1e-2)


def test_layer_norm() -> None:
    states = _array(3, 5)
    (outputs,), values = _run(lambda network: [attention.layer_norm(network, states)])
    normed = (states - states.mean(1, keepdims=True)) / states.std(1, keepdims=True)
    wanted = normed * values["norm/scale"] + values["norm/offset"]
    np.testing.assert_allclose(outputs, wanted, rtol=1e-4, atol=1e-5)


def test_gates_drop_tokens_beyond_the_capacity() -> None:
    """4 like tokens, 4 experts: 3 slots each; the fourth token finds both experts full."""
    grouped = np.ones([1, 4, 2], np.float32)
    (combine, imbalance), values = _run(
        lambda network: list(moe._gates(network, tf.constant(grouped), 4))
    )
    gates = _softmax(values["gate"].sum(0))
    second, first = np.argsort(gates)[-2:]
    wanted = np.zeros([1, 4, 4, 3])
    for token in range(3):
        wanted[0, token, first, token] = gates[first] / (gates[first] + gates[second])
        wanted[0, token, second, token] = gates[second] / (gates[first] + gates[second])
    np.testing.assert_allclose(combine, wanted, rtol=1e-5)
    np.testing.assert_allclose(imbalance, 4 * gates[first], rtol=1e-5)


def test_second_choices_take_the_slots_that_first_choices_leave() -> None:
    """Token 0 asks experts (0, 1), token 1 asks (1, 0): each expert's slot 0 goes to its first."""
    grouped = np.array([[[1, 0], [0, 1]]], np.float32)

    def gates(network: Network) -> list[Any]:
        combine, _ = moe._gates(network, tf.constant(grouped), 2)
        kernel = network.kernels[-1]
        return [combine, kernel]

    (combine, kernel), _ = _run(gates, seed=_seed_of_preference())
    chances = _softmax(kernel)
    wanted = np.zeros([1, 2, 2, 3])
    wanted[0, 0, 0, 0], wanted[0, 0, 1, 1] = chances[0]
    wanted[0, 1, 0, 1], wanted[0, 1, 1, 0] = chances[1]
    np.testing.assert_allclose(combine, wanted, rtol=1e-5)


def _seed_of_preference() -> int:
    """A seed whose first 2 x 2 normal draw is larger on the diagonal of each row."""
    for seed in range(100):
        kernel = np.random.default_rng(seed).standard_normal((2, 2))
        if kernel[0, 0] > kernel[0, 1] and kernel[1, 1] > kernel[1, 0]:
            return seed
    raise AssertionError("no such seed")


def test_interactions_are_the_dot_products_of_pairs() -> None:
    vectors = [_array(2, 3, seed=seed) for seed in (1, 2, 3)]
    (pairs,), _ = _run(lambda network: [interactions([tf.constant(v) for v in vectors])])
    a, b, c = vectors
    wanted = np.stack([(b * a).sum(1), (c * a).sum(1), (c * b).sum(1)], 1)
    np.testing.assert_allclose(pairs, wanted, rtol=1e-5)
