"""HDP: a Grouper and a Placer, trained together by policy gradient."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
import tf_keras

from graphs.op_graph import IntArray
from graphs.problem import Grouping, Outcome, Problem
from graphs.protos import Tensor
from tfplace.algorithms.learned.config import GrouperConfig, HierarchicalConfig
from tfplace.algorithms.learned.features import (
    FeatureArray,
    group_features,
    op_features,
    op_table,
    type_ids,
)
from tfplace.algorithms.learned.learning import policy_gradient
from tfplace.algorithms.learned.learning.appraisal import Appraisal, feasible
from tfplace.algorithms.learned.policies import distributions
from tfplace.algorithms.learned.policies.graph_embedding import dense
from tfplace.algorithms.learned.policies.seq2seq import Sequence as GroupSequence
from tfplace.algorithms.learned.sequence_learner import SequenceLearner, reinforce_loss
from tfplace.grouping.grouped_problem import GroupedProblem, GroupingConfig, grouped_problem
from tfplace.grouping.quotient import colocation_units, group_allowed, group_sums
from tfplace.search.kept import snapshot
from tfplace.search.trial import Proposal


@dataclasses.dataclass(frozen=True)
class HierarchicalProposal(distributions.GroupedProposal):
    """Placements of one sampled grouping."""

    group_of_unit: IntArray  # i4[U] the group of each colocation unit
    sequence: GroupSequence  # the groups' features f4[G, F] and the noise on their logits f4[G, D]


class Hierarchical:
    """Grouper and Placer trained jointly by REINFORCE (Mirhoseini, Goldie et al., ICLR 2018).

    J(θ_g, θ_d) = E[R] = Σ_{g∼π_g} Σ_{d∼π_d} p(g; θ_g) p(d | g; θ_d) R_d, whose gradients are
    ∇_θg J ≈ (1/m) Σ_i ∇ log p(g_i; θ_g) · (1/k) Σ_j (R_dj − B) and
    ∇_θd J ≈ (1/m) Σ_i (1/k) Σ_j ∇ log p(d_j | g_i; θ_d) (R_dj − B), m groupings of k placements:
    each part climbs its own on the same advantages, clipped apart. Departures: whole
    colocation units are grouped; the Grouper starts from minimum cuts (see GrouperConfig); a unit
    that has no kernel on its group's device goes to its fastest device instead of failing;
    see HierarchicalConfig for the numbers.
    """

    def __init__(
        self, problem: Problem, seed: int = 0, config: HierarchicalConfig | None = None
    ) -> None:
        """Makes an untrained Grouper and Placer; ConstraintError: an op may lie on no device."""
        self.config = config or HierarchicalConfig()
        self._problem = problem
        self._units = colocation_units(problem.graph)
        self._allowed = problem.allowed()
        start = self._start(seed)
        self._has_choice = start.has_choice
        # There are more minimum cuts than asked for where there are more sets of allowed devices.
        self._num_groups = max(self.config.grouper.num_groups, start.grouping.num_groups)
        self._grouper = self._new_grouper(start.grouping, seed)
        self._descent = policy_gradient.Descent(
            self._grouper, self.config.grouper.optimizer, names=("grouper", "grouper_optimizer")
        )
        self._table = op_table(problem)
        width = self._group_features(start.grouping.group_of_op).shape[1]
        configs = self.config.policy, self.config.optimizer
        self._placer = SequenceLearner((width, problem.num_devices), configs, reinforce_loss, seed)
        # i4[N]: each op's unit's fastest device, for units that may not lie on their group's.
        seconds = np.where(self._allowed, problem.op_seconds, 0.0)
        allowed = group_allowed(self._allowed, self._units)
        fastest = np.where(allowed, group_sums(seconds, self._units), np.inf).argmin(axis=1)
        self._fallback = fastest[self._units.group_of_op].astype(np.int32)
        self._rng = np.random.default_rng(seed)
        self._appraisal = Appraisal(problem, self.config.baseline_decay)
        self._num_updates = 0
        self._sample_groups = tf.function(self._grouper.sample)
        self._descend = tf.function(self._descent_step)

    def propose(self) -> HierarchicalProposal | None:
        """Placements of one sampled grouping; one and then None where nothing can be chosen."""
        if self._num_updates > 0 and not self._has_choice:
            return None
        uniform = tf.constant(self._rng.random(self._units.num_groups), tf.float32)
        group_of_unit = self._sample_groups(uniform).numpy()
        groups = group_of_unit[self._units.group_of_op]
        sequence = self._sequence(groups)
        size = self.config.placements_per_grouping if self._has_choice else 1
        shape = (self._num_groups, size, self._problem.num_devices)
        devices, logs = self._placer.sample(sequence, distributions.gumbel_noise(self._rng, shape))
        wanted = devices[:, groups]
        fits = self._allowed[np.arange(len(groups)), wanted]
        device_of_op = np.where(fits, wanted, self._fallback).astype(np.int32)
        return HierarchicalProposal(device_of_op, devices, logs, group_of_unit, sequence)

    def learn(self, proposal: Proposal, outcomes: Sequence[Outcome]) -> Mapping[str, float]:
        """One policy gradient step of both parts; returns mean reward, losses and entropy."""
        assert isinstance(proposal, HierarchicalProposal)
        rewards = self._appraisal.rewards(outcomes)
        valid_only = self._num_updates >= self.config.valid_only_updates
        teaches = feasible(outcomes) | (not valid_only)
        self._num_updates += 1
        scalars = {"mean_reward": float(rewards.mean())}
        if not self._has_choice or not teaches.any():
            return scalars
        advantages = self._appraisal.advantages(rewards, teaches)
        placer = self._placer.learn(proposal.sequence, proposal, advantages)
        advantage = tf.constant(advantages.mean(keepdims=True), tf.float32)
        loss = float(self._descend(tf.constant(proposal.group_of_unit), advantage))
        policy_gradient.require_finite("HDP's Grouper", {"loss": loss})
        return {**scalars, **placer, "grouper_loss": loss}

    def state(self) -> snapshot.Snapshot:
        """Weights and optimizers of both parts, random generator, baseline and update count."""
        return {
            **self._placer.state(),
            **self._descent.state(),
            "rng": snapshot.of_generator(self._rng),
            "baseline": self._appraisal.state,
            "num_updates": np.array(self._num_updates),
        }

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes on where `state()` was taken; ValueError if that was another problem's."""
        self._placer.set_state(state)
        self._descent.set_state(state)
        snapshot.into_generator(self._rng, state["rng"])
        self._appraisal.state = state["baseline"]
        self._num_updates = int(state["num_updates"])

    def _start(self, seed: int) -> GroupedProblem:
        """The minimum cuts; also checks that every op may lie somewhere."""
        grouping = GroupingConfig(max_groups=self.config.grouper.num_groups)
        return grouped_problem(self._problem, grouping, seed)

    def _new_grouper(self, start: Grouping, seed: int) -> "Grouper":
        """A Grouper of the colocation units; a unit has the features of its first op."""
        first = np.unique(self._units.group_of_op, return_index=True)[1]
        config = dataclasses.replace(self.config.grouper, num_groups=self._num_groups)
        started = start.group_of_op[first] if config.start == "minimum_cut" else None
        ids, _ = type_ids(self._problem.graph.op_types)
        return Grouper(ids[first], op_features(self._problem)[first], config, started, seed)

    def _group_features(self, groups: IntArray) -> FeatureArray:
        return group_features(self._problem.graph, self._table, Grouping(groups, self._num_groups))

    def _sequence(self, groups: IntArray) -> GroupSequence:
        """What the Placer reads; noise on the logits lasts for the first updates."""
        features = self._group_features(groups)
        prior = np.zeros((len(features), self._problem.num_devices))
        if self._num_updates < self.config.noise_updates:
            prior += self._rng.normal(scale=self.config.noise_scale, size=prior.shape)
        prior[:, ~self._allowed.any(axis=0)] = distributions.FORBIDDEN
        return GroupSequence(tf.constant(features), tf.constant(prior, tf.float32))

    def _descent_step(self, groups: Tensor, advantage: Tensor) -> Tensor:
        with tf.GradientTape() as tape:
            log_probs = self._grouper.log_probs(groups)[tf.newaxis]
            loss = policy_gradient.policy_gradient_loss(log_probs, advantage)
        self._descent.step(tape, loss)
        return loss


class Grouper(tf.Module):
    """π(g | op) = softmax(W₂ relu(W₁ [type embedding, features]) + s·1[g = start]), per op.

    Source: Mirhoseini, Goldie et al. 2018. Departure: s. With random groups to start from, nearly
    every edge is cut and placements differ by noise; s makes the untrained Grouper keep to given
    groups with `start_probability`. The output layer starts at zero, so s = 0 is uniform.
    """

    def __init__(
        self,
        type_ids: IntArray,
        features: FeatureArray,
        config: GrouperConfig,
        start: IntArray | None,
        seed: int,
    ) -> None:
        """Makes the weights, of i4[N] types, f4[N, F] features, i4[N] groups to start from."""
        super().__init__()
        self._type_ids = tf.constant(type_ids)
        self._features = tf.constant(features)
        self._start = None if start is None else tf.constant(start)
        stay = config.start_probability * (config.num_groups - 1) / (1 - config.start_probability)
        self._start_logit = float(np.log(stay)) if config.num_groups > 1 else 0.0
        self._num_groups = config.num_groups
        types = int(type_ids.max(initial=0)) + 1
        start_of_types = tf_keras.initializers.GlorotUniform(seed)([types, config.type_units])
        self.type_embedding = tf.Variable(start_of_types, name="types")
        self.hidden = dense(features.shape[1] + config.type_units, config.units, "relu", seed + 1)
        self.output = dense(config.units, config.num_groups, None, None)

    def log_distributions(self) -> Tensor:
        """log π(g | op), f4[N, G]."""
        types = tf.gather(self.type_embedding, self._type_ids)
        logits = self.output(self.hidden(tf.concat([types, self._features], axis=1)))
        if self._start is not None:
            logits += self._start_logit * tf.one_hot(self._start, self._num_groups)
        return tf.nn.log_softmax(logits)

    def sample(self, uniform: Tensor) -> Tensor:
        """Groups i4[N], where the cumulative distribution first exceeds uniform f4[N] in [0, 1)."""
        limits = tf.cumsum(tf.exp(self.log_distributions()), axis=1)
        # Rounding may leave the last limit below 1.
        below = tf.reduce_sum(tf.cast(limits <= uniform[:, tf.newaxis], tf.int32), axis=1)
        return tf.minimum(below, self._num_groups - 1)

    def log_probs(self, groups: Tensor) -> Tensor:
        """log π of each op's group f4[N], of groups i4[N]."""
        return tf.gather(self.log_distributions(), groups, batch_dims=1)
