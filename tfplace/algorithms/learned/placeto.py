"""Placeto: episodes that re-place each group once, learned by REINFORCE on a graph embedding."""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from graphs.op_graph import FloatArray
from graphs.problem import Measurement, Outcome, Problem
from graphs.protos import Tensor
from tfplace.algorithms.learned.config import PlacetoConfig
from tfplace.algorithms.learned.learning import appraisal, policy_gradient
from tfplace.algorithms.learned.policies import placement_features
from tfplace.algorithms.learned.policies.distributions import chosen_log_probs, log_prior
from tfplace.algorithms.learned.policies.graph_embedding import GraphEmbedding, GraphState
from tfplace.grouping.grouped_problem import grouped_problem
from tfplace.search.kept import snapshot
from tfplace.search.trial import Proposal


class Placeto:
    """Episodes that visit the groups in graph order, re-placing each (Addanki et al. 2019).

    Visit i chooses a_i ∼ π(·|s_i) for group i; its reward is the drop in step time,
    r_i = t_{i−1} − t_i, relative to the problem's reference time. An episode ends with one step
    along Σ_i (Σ_{k≥i} γ^{k−i} r_k − b_i) ∇ log π(a_i|s_i) + λ ∇H; b_i is the mean return at
    position i over the last episodes. Departures: the groups (minimum cuts); scores per device
    (see GraphEmbedding); discounted returns, higher rates and where an episode starts (see
    PlacetoConfig); advantages scaled to an episode's root mean square.
    """

    def __init__(
        self, problem: Problem, seed: int = 0, config: PlacetoConfig | None = None
    ) -> None:
        """Groups the problem; the first episode starts from each group's fastest device.

        Raises:
          ConstraintError: an op may lie on no device.
        """
        self.config = config or PlacetoConfig()
        self.grouped = grouped_problem(problem, self.config.grouping, seed)
        self._features = placement_features.episode_features(self.grouped)
        self._relations = placement_features.graph_relations(self.grouped)
        self._priors = log_prior(self.grouped.allowed)
        widths = placement_features.GROUP_WIDTH, placement_features.DEVICE_WIDTH
        self._policy = GraphEmbedding(widths, self.config.units, self.config.rounds, seed)
        self._descent = policy_gradient.Descent(self._policy, self.config.optimizer)
        self._rng = np.random.default_rng(seed)
        self._reference = appraisal.reference_seconds(problem)
        seconds = np.where(self.grouped.allowed, self._features.seconds, np.inf)
        self._best = seconds.argmin(axis=1).astype(np.int32)
        self._best_seconds = np.inf
        self._returns = np.zeros((0, self.grouped.grouping.num_groups))
        self._num_episodes = 0
        self._states: list[GraphState] = []  # what the policy saw at each visit of the episode
        self._devices: list[int] = []  # and chose
        self._seconds: list[float] = []
        self._begin_episode()
        self._log_distributions = tf.function(self._policy.log_distributions)
        self._descend = tf.function(self._descent_step)

    def propose(self) -> Proposal | None:
        """The start of an episode, then one group moved at a time."""
        if self._num_episodes > 0 and not self.grouped.has_choice:
            return None
        if self._seconds:
            group = len(self._devices)
            state = self._graph_state(group)
            logs = self._log_distributions(self._relations, state).numpy()[0]
            policy_gradient.require_finite("Placeto", {"log-probability": logs})
            self._move(group, state, int(np.argmax(logs + self._rng.gumbel(size=len(logs)))))
        return Proposal(self.grouped.device_of_op(self._placement[np.newaxis]))

    def learn(self, proposal: Proposal, outcomes: Sequence[Outcome]) -> Mapping[str, float]:
        """Notes the step time; updates the policy at an episode's end."""
        (outcome,) = outcomes
        usable = self.grouped.problem.usable_bytes()
        seconds = appraisal.penalised_seconds(outcome, self._reference, usable) / self._reference
        self._seconds.append(seconds)
        if isinstance(outcome, Measurement) and seconds < self._best_seconds:
            self._best, self._best_seconds = self._placement.copy(), seconds
        if self.grouped.has_choice and len(self._devices) < len(self._placement):
            return {"relative_seconds": seconds}
        scalars = self._end_episode() if self.grouped.has_choice else {}
        self._num_episodes += 1
        self._begin_episode()
        return {"relative_seconds": seconds, **scalars}

    def state(self) -> snapshot.Snapshot:
        """Weights, optimizer, random generator, baselines and the episode so far."""
        return {
            **self._descent.state(),
            "rng": snapshot.of_generator(self._rng),
            "returns": self._returns,
            "num_episodes": np.array(self._num_episodes),
            "best": self._best,
            "best_seconds": np.array(self._best_seconds),
            "episode_start": self._start,
            "episode_devices": np.array(self._devices, dtype=np.int32),
            "episode_seconds": np.array(self._seconds),
        }

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes on where `state()` was taken, between `learn` and `propose`.

        Raises:
          ValueError: the arrays are of another problem or configuration.
        """
        self._descent.set_state(state)
        snapshot.into_generator(self._rng, state["rng"])
        self._returns = state["returns"]
        self._num_episodes = int(state["num_episodes"])
        self._best = state["best"]
        self._best_seconds = float(state["best_seconds"])
        self._start = state["episode_start"]
        self._placement = self._start.copy()
        self._states, self._devices = [], []
        for group, device in enumerate(state["episode_devices"]):
            self._move(group, self._graph_state(group), int(device))
        self._seconds = [float(value) for value in state["episode_seconds"]]

    def set_weights(self, state: Mapping[str, np.ndarray]) -> None:
        """Takes only the policy from a `state()`, of whatever problem and cluster.

        Raises:
          ValueError: the policy has other sizes.
        """
        snapshot.into_variables("policy", self._policy.variables, state)

    def _begin_episode(self) -> None:
        if self._num_episodes == 0 or self.config.start_from_best:
            self._start = self._best.copy()
        self._placement = self._start.copy()
        self._states, self._devices = [], []
        self._seconds = []

    def _move(self, group: int, state: GraphState, device: int) -> None:
        self._states.append(state)
        self._devices.append(device)
        self._placement[group] = device

    def _graph_state(self, group: int) -> GraphState:
        placed = np.arange(len(self._placement)) < group
        devices = self._features.of_devices(self._placement, placed, group)
        return GraphState(
            group_features=tf.constant(self._features.of_groups(placed, group)[np.newaxis]),
            device_features=tf.constant(devices[np.newaxis]),
            placement=tf.constant(self._placement[np.newaxis]),
            current=tf.constant([group]),
            log_prior=tf.constant(self._priors[group][np.newaxis]),
        )

    def _end_episode(self) -> Mapping[str, float]:
        """REINFORCE on the finished episode."""
        returns = discounted_returns(np.array(self._seconds), self.config.discount)
        recent = [*self._returns, returns][-self.config.baseline_episodes :]
        # The first episode is compared with its own mean: it has no other.
        baseline = self._returns.mean(axis=0) if len(self._returns) else returns.mean()
        self._returns = np.stack(recent)
        progress = min(self._num_episodes / self.config.decay_episodes, 1.0)
        first, last = self.config.optimizer.learning_rate, self.config.last_learning_rate
        self._descent.optimizer.learning_rate.assign(first + (last - first) * progress)
        advantages = appraisal.over_root_mean_square(returns - baseline)
        loss, entropy = self._descend(
            GraphState(*(tf.concat(part, axis=0) for part in zip(*self._states, strict=True))),
            tf.constant(self._devices),
            tf.constant(advantages, tf.float32),
        )
        scalars = {"loss": float(loss), "entropy": float(entropy)}
        policy_gradient.require_finite("Placeto", scalars)
        return {**scalars, "return": float(returns[0])}

    def _descent_step(self, states: GraphState, devices: Tensor, advantage: Tensor) -> Tensor:
        with tf.GradientTape() as tape:
            logs = self._policy.log_distributions(self._relations, states)[:, tf.newaxis]
            chosen = chosen_log_probs(logs, devices[:, tf.newaxis])
            entropy = policy_gradient.mean_entropy(logs)
            loss = (
                policy_gradient.policy_gradient_loss(chosen, advantage)
                - self.config.entropy_weight * entropy
            )
        self._descent.step(tape, loss)
        return loss, entropy


def discounted_returns(seconds: FloatArray, discount: float) -> FloatArray:
    """R_i = Σ_{k ≥ i} γ^{k−i} (t_{k−1} − t_k), f8[G], of the step times t: f8[G + 1] of an episode.

    With γ = 1 that is t_{i−1} − t_G.
    """
    drops = -np.diff(seconds)
    returns = np.zeros(len(drops))
    later = 0.0
    for index in range(len(drops) - 1, -1, -1):
        later = drops[index] + discount * later
        returns[index] = later
    return returns
