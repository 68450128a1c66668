"""Placeto's policy: message passing over the groups, then a score for each device."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tf_keras

from graphs.protos import KerasObject, Tensor


class GraphState(NamedTuple):
    """States of an episode, one per row; S states, G groups, D devices, F and E features."""

    group_features: Tensor  # f4[S, G, F]
    device_features: Tensor  # f4[S, D, E] of each device for the group being placed
    placement: Tensor  # i4[S, G] device of each group
    current: Tensor  # i4[S] the group being placed
    log_prior: Tensor  # f4[S, D] 0 or FORBIDDEN, added to the current group's logits


class GraphRelations(NamedTuple):
    """What never changes in an episode."""

    from_parents: Tensor  # f4[G, G], row i averages over the groups that i uses tensors of
    from_children: Tensor  # f4[G, G], row i averages over the groups that use tensors of i
    pools: Tensor  # f4[3, G, G], rows are 1 at i's ancestors, at its descendants, and at neither


class GraphEmbedding(tf.Module):
    """π(d | state) = softmax_d score(e_v, pools of d, features of d).

    e ← e + g(mean over neighbours of f(e)) for a number of rounds, with weights of its own for
    each direction; then for each device d the mean embeddings of v's ancestors, descendants and
    other groups that lie on d.

    Source: Addanki et al. 2019. Departure: there the pools take all devices together and a
    softmax of fixed width follows, with the device as a one-hot feature; here pooling is per
    device and one network scores them all, so that a policy serves any number of devices of any
    kind. No weight depends on G, D or the graph.
    """

    def __init__(self, widths: tuple[int, int], units: int, rounds: int, seed: int) -> None:
        """Makes the weights; `widths` are F and E, `rounds` those of message passing."""
        super().__init__()
        group_width, device_width = widths
        seeds = iter((np.random.SeedSequence(seed).generate_state(16) // 2).tolist())
        self._rounds = rounds
        self.embed = dense(group_width, units, "relu", next(seeds))
        self.messages = [dense(units, units, "relu", next(seeds)) for _ in range(2)]
        self.updates = [dense(units, units, "tanh", next(seeds)) for _ in range(2)]
        self.score = dense(5 * units + device_width, 2 * units, "relu", next(seeds))
        self.output = tf_keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        self.output.build([None, 2 * units])

    def log_distributions(self, relations: GraphRelations, state: GraphState) -> Tensor:
        """log π(d), f4[S, D], for each state's current group."""
        groups = self._embed(relations, state.group_features)
        current = tf.gather(groups, state.current, batch_dims=1)
        pools = self._pools(relations, state, groups)
        here = tf.repeat(current[:, tf.newaxis], state.device_features.shape[1], axis=1)
        scored = self.score(tf.concat([here, pools, state.device_features], axis=-1))
        return tf.nn.log_softmax(self.output(scored)[..., 0] + state.log_prior)

    def _embed(self, relations: GraphRelations, features: Tensor) -> Tensor:
        """f4[S, G, 2·units]: each group by what the groups before it and those after it tell."""
        start = self.embed(features)
        towards = (relations.from_parents, relations.from_children)
        embedded = []
        for neighbours, message, update in zip(towards, self.messages, self.updates, strict=True):
            x = start
            for _ in range(self._rounds):
                x = start + update(tf.einsum("ij,sjk->sik", neighbours, message(x)))
            embedded.append(x)
        return tf.concat(embedded, axis=-1)

    def _pools(self, relations: GraphRelations, state: GraphState, groups: Tensor) -> Tensor:
        """f4[S, D, 3·units]: means over the groups of each pool on each device."""
        halves = tf.split(groups, 2, axis=-1)
        # Ancestors are read forward, descendants backward, the others both ways.
        values = (halves[0], halves[1], (halves[0] + halves[1]) / 2.0)
        on_device = tf.one_hot(state.placement, state.device_features.shape[1])
        pooled = []
        for pool, value in zip(tf.unstack(relations.pools), values, strict=True):
            member = tf.gather(pool, state.current)[:, :, tf.newaxis] * on_device
            total = tf.einsum("sgd,sgk->sdk", member, value)
            pooled.append(total / (1.0 + tf.reduce_sum(member, axis=1)[:, :, tf.newaxis]))
        return tf.concat(pooled, axis=-1)


def dense(inputs: int, units: int, activation: str | None, seed: int | None) -> KerasObject:
    """A built tf-keras layer f4[..., inputs] → f4[..., units].

    Args:
      activation: as tf-keras names it; None for none.
      seed: of the Glorot weights; None for weights of zero, as an untrained policy's last layer has
        them to be uniform.
    """
    start = "zeros" if seed is None else tf_keras.initializers.GlorotUniform(seed)
    layer = tf_keras.layers.Dense(units, activation, kernel_initializer=start)
    layer.build([None, inputs])
    return layer
