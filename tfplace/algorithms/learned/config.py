"""Default hyper-parameters of the learned algorithms: unit, range and source of each.

"read", "second-hand" and "memory" say how sure a figure is, as in tfplace/docs/published.md, this
project's digest of the papers. Where that is "memory" or the paper is silent, the value here is
tfplace's choice, tuned in the simulator.
"""

import dataclasses

from tfplace.algorithms.learned.learning.appraisal import FAILING_REWARD
from tfplace.grouping.grouped_problem import GroupingConfig


@dataclasses.dataclass(frozen=True)
class Seq2SeqConfig:
    """Sizes of the sequence-to-sequence policy.

    Attributes:
      units: H of every layer, even, 2 to 1024. tfplace's choice: 256 (HDP, second-hand) takes
        12 times as long as 64 on a CPU.
      num_layers: of the encoder and of the decoder, 1 to 4. 2: Spotlight (read).
      bidirectional: whether the encoder reads both ways (HDP: read).
      logit_bound: C of logits = C·tanh(·), 0 for none. HDP: 5 (read).
      temperature: T, logits are divided by it, above 0. HDP: 10 (read).
      compiled: whether XLA compiles sampling and learning: about 7 s at the start, then a third
        to a half of the time per trial.
    """

    units: int = 64
    num_layers: int = 2
    bidirectional: bool = True
    logit_bound: float = 0.0
    temperature: float = 1.0
    compiled: bool = True


@dataclasses.dataclass(frozen=True)
class AdamConfig:
    """Adam (Kingma & Ba 2015) with gradients clipped by their global norm.

    Attributes:
      learning_rate: of a step, above 0.
      gradient_clip: the largest global norm, above 0.
    """

    learning_rate: float = 1e-3
    gradient_clip: float = 1.0


@dataclasses.dataclass(frozen=True)
class SpotlightConfig:
    """Spotlight (Gao, Chen, Li, ICML 2018).

    Attributes:
      grouping: of the ops: minimum cuts, tfplace's choice.
      policy: sizes of the network.
      optimizer: tfplace's choice; rates of 1e-3 and 3e-3 did equally well.
      batch_size: placements per update, 1 to 1000. tfplace's choice.
      ascent_steps: per update, 1 to 100. 10: read.
      kl_weight: β, 0 or more. 1: read.
      baseline_decay: γ of the moving average, 0 to 1. 0.9: ColocRL.
      start_epsilon: with a placement to start from, how much of the untrained policy is uniform,
        0 to 1, exclusive. tfplace's choice.
    """

    grouping: GroupingConfig = GroupingConfig()
    policy: Seq2SeqConfig = Seq2SeqConfig()
    optimizer: AdamConfig = AdamConfig()
    batch_size: int = 10
    ascent_steps: int = 10
    kl_weight: float = 1.0
    baseline_decay: float = 0.9
    start_epsilon: float = 0.1


@dataclasses.dataclass(frozen=True)
class ColocRLConfig:
    """ColocRL (Mirhoseini et al., ICML 2017).

    Attributes:
      grouping: colocation, then its only-consumer rule: read. At most 128 groups: tfplace's
        choice; the paper's graphs had 83 to 280 (memory), tfplace's have 900 to 2,400.
      policy: one layer, one way: tfplace's choice.
      optimizer: tfplace's choice.
      batch_size: placements per update; "several": second-hand.
      baseline_decay: 0.9: memory.
      first_baseline: the failing signal: memory. None for the first batch's median, which saves
        some 200 trials of learning nothing: 5 % faster placements after 1,000.
      warm_up_trials: after so many, only placements that run teach: memory; the number is
        tfplace's choice.
    """

    grouping: GroupingConfig = GroupingConfig(method="colocation", max_groups=128)
    policy: Seq2SeqConfig = Seq2SeqConfig(num_layers=1, bidirectional=False)
    optimizer: AdamConfig = AdamConfig(learning_rate=3e-3)
    batch_size: int = 10
    baseline_decay: float = 0.9
    first_baseline: float | None = FAILING_REWARD
    warm_up_trials: int = 500


@dataclasses.dataclass(frozen=True)
class PostConfig:
    """Post (Gao, Chen, Li, NeurIPS 2018).

    Attributes:
      grouping: of the ops: minimum cuts, tfplace's choice.
      batch_size: K, placements per proximal update. 10: memory.
      ascent_steps: per proximal update. 10: read ("about ten").
      step_size: of gradient ascent. 1: memory.
      kl_weight: β. 1: as Spotlight.
      elite_period: N, placements per cross-entropy update, a multiple of K. 50: memory.
      elite_fraction: 0.1: read.
      epsilon: ε at the start, 0 to 1. 0.1: memory.
      epsilon_trials: trials until ε has fallen to 0, linearly. 2400: the paper's whole run (read).
      baseline_decay: γ of the moving average. 0.9: ColocRL.
      start_epsilon: with a placement to start from, ε of the first distribution, as Spotlight's.
    """

    grouping: GroupingConfig = GroupingConfig()
    batch_size: int = 10
    ascent_steps: int = 10
    step_size: float = 1.0
    kl_weight: float = 1.0
    elite_period: int = 50
    elite_fraction: float = 0.1
    epsilon: float = 0.1
    epsilon_trials: int = 2400
    baseline_decay: float = 0.9
    start_epsilon: float = 0.1


@dataclasses.dataclass(frozen=True)
class GrouperConfig:
    """HDP's Grouper.

    Attributes:
      num_groups: G. 256: second-hand. 64 gave 6 % faster placements after 1,000 trials.
      units: of the hidden layer. 64: second-hand.
      type_units: of the op-type embedding. 20: second-hand.
      start: "minimum_cut": the untrained Grouper puts an op into its group of coarsen.py with
        probability `start_probability`; "uniform": into any group alike, as the paper's.
        tfplace's choice: after 1,000 trials on RNNLM and Inception-V3 "uniform" was 24 % slower
        than random search over minimum cuts, which was 10 % slower than "minimum_cut".
      start_probability: 0 to 1, exclusive.
      optimizer: of the Grouper.
    """

    num_groups: int = 256
    units: int = 64
    type_units: int = 20
    start: str = "minimum_cut"
    start_probability: float = 0.999
    optimizer: AdamConfig = AdamConfig(learning_rate=1e-3)


@dataclasses.dataclass(frozen=True)
class HierarchicalConfig:
    """HDP (Mirhoseini, Goldie et al., ICLR 2018).

    Attributes:
      grouper: sizes, start and optimizer of the Grouper.
      policy: bi-LSTM, logits 5·tanh: read. Temperature 1: tfplace's choice. With the paper's 10
        (read) no device is ever more than e times as likely as another; 1,000 trials then came
        3 % below random search's step time (geometric mean of RNNLM and Inception-V3), with 1
        10 % below.
      optimizer: clip 1.0: read. The rate is tfplace's choice: with the paper's 0.1 (read) the
        Grouper was down to one group within 200 trials. With 3e-3 the Placer settled on one device
        too early: 12 % slower placements after 1,000 trials (RNNLM on k80x4 and NMT-2 on k80x2,
        three seeds) than with 1e-3.
      placements_per_grouping: 4: read.
      noise_updates: updates with noise on the logits. 500: second-hand.
      noise_scale: standard deviation of the noise. tfplace's choice.
      valid_only_updates: after so many, only placements that run teach. 500: second-hand.
      baseline_decay: γ of the moving average. tfplace's choice.
    """

    grouper: GrouperConfig = GrouperConfig()
    policy: Seq2SeqConfig = Seq2SeqConfig(num_layers=1, logit_bound=5.0)
    optimizer: AdamConfig = AdamConfig(learning_rate=1e-3)
    placements_per_grouping: int = 4
    noise_updates: int = 500
    noise_scale: float = 0.1
    valid_only_updates: int = 500
    baseline_decay: float = 0.9


@dataclasses.dataclass(frozen=True)
class PlacetoConfig:
    """Placeto (Addanki et al., NeurIPS 2019).

    Attributes:
      grouping: of the ops: minimum cuts into at most 32 groups, tfplace's choice.
      units: of embeddings and hidden layers. tfplace's choice.
      rounds: of message passing. 8: read.
      optimizer: clip 1.25: read. First rate 3e-2: tfplace's choice. The paper's 1e-3 (read) is
        for tens of thousands of trials; after 1,000 its policy was still uniform.
      last_learning_rate: a tenth of the first, as the paper's (read), reached linearly.
      decay_episodes: episodes until then. tfplace's choice.
      entropy_weight: of the entropy bonus. tfplace's choice.
      baseline_episodes: the baseline of a visit is the mean over so many. 10: read.
      start_from_best: whether an episode starts from the best placement so far, rather than
        from the first one. tfplace's choice: 10 % faster placements after 1,000 trials (γ = 1).
      discount: γ of returns, 0 to 1. 0.5: tfplace's choice; with the paper's 1 (read) each return
        holds the noise of all later visits, and placements after 1,000 trials were 11 % slower
        (geometric mean of RNNLM, NMT and Inception-V3).
    """

    grouping: GroupingConfig = GroupingConfig(max_groups=32)
    units: int = 16
    rounds: int = 8
    optimizer: AdamConfig = AdamConfig(learning_rate=3e-2, gradient_clip=1.25)
    last_learning_rate: float = 3e-3
    decay_episodes: int = 500
    entropy_weight: float = 0.01
    baseline_episodes: int = 10
    start_from_best: bool = True
    discount: float = 0.5
