"""Default hyper-parameters of the learned algorithms: unit, range and source of each.

"PUBLISHED.md" is this project's digest of the papers; where it marks a figure "memory" or the
paper is silent, the value here is tfplace's choice, tuned in the simulator.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class GroupingConfig:
    """How ops become groups.

    Attributes:
      method: "minimum_cut" (coarsen.py) or "colocation" (ColocRL's rule).
      max_groups: count, 1 to N; for "minimum_cut" only. tfplace's choice: local search over
        32 to 64 groups of an unrolled LSTM came as low as over 128, in fewer trials.
      imbalance: share of the mean group's seconds, 0 to 10. tfplace's choice.
    """

    method: str = "minimum_cut"
    max_groups: int = 64
    imbalance: float = 0.1


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
class SpotlightConfig:
    """Spotlight (Gao, Chen, Li, ICML 2018).

    Attributes:
      grouping, policy: see there.
      batch_size: placements per update, 1 to 1000. tfplace's choice.
      ascent_steps: per update, 1 to 100. 10: read.
      kl_weight: β, 0 or more. 1: read.
      learning_rate: of Adam, above 0. tfplace's choice: 1e-3 and 3e-3 did equally well.
      gradient_clip: global norm, above 0. tfplace's choice.
      baseline_decay: γ of the moving average, 0 to 1. 0.9: ColocRL.
    """

    grouping: GroupingConfig = GroupingConfig()
    policy: Seq2SeqConfig = Seq2SeqConfig()
    batch_size: int = 10
    ascent_steps: int = 10
    kl_weight: float = 1.0
    learning_rate: float = 1e-3
    gradient_clip: float = 1.0
    baseline_decay: float = 0.9
