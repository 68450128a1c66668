"""How annealing goes about it; decisions 017 to 019 have the figures behind the defaults."""

import dataclasses
from collections.abc import Sequence

from tfplace.algorithms.annealing.plan import Round

# Grouping a larger graph takes seconds: it gets one grouping per two sizes.
LARGE_OPS = 50_000

# Many short runs, since two runs from the same placement end up to a tenth apart; then long ones
# from the best of them, half of the time on the whole problem, whose times are exact.
ROUNDS = (
    Round(16, is_fused=True, weight=0.75),
    Round(1, is_fused=True, weight=2.25),
    Round(1, weight=3.0),
)
# An unrolled recurrent graph has two dozen roles that have most of the time. Which of them share a
# device decides; a run takes thousands of trials to find that, so there are fewer, longer ones.
REPEATED_ROUNDS = (
    Round(4, is_fused=True, weight=2.0),
    Round(1, is_fused=True),
    Round(1, weight=3.0),
)
# A split step waits for channels that all weights use at once; fusing ops changes just that.
SPLIT_ROUNDS = (Round(4), Round(1))


@dataclasses.dataclass(frozen=True)
class AnnealingConfig:
    """What annealing inside the simulator and local search have in common.

    Attributes:
      hot: temperature at the start of a run, as a share of the step time: a worse placement is
        taken with the chance exp(-ln(new / old) / temperature).
      hottest: where few units can be moved, each move changes more, so that both temperatures
        are higher; this is the most that `hot` rises to.
      cold: temperature at the end of a run.
      level_sizes: groups per level, coarse to fine; colocation units come last. A level that the
        graph is too small for is left out.
      kind_weights: [K] how often each kind of move is drawn, in the order of `moves`. Moves on
        the critical path change nothing where nobody knows one.
      focus: width in levels of the bell that says how often each level is drawn; its middle moves
        from the coarsest to the finest level during a run.
      overflow_weight: see `energy.memory_penalty`.
    """

    hot: float
    hottest: float = 0.1
    cold: float = 0.0002
    level_sizes: Sequence[int] = (16, 24, 64, 96, 256, 384, 1024)
    kind_weights: Sequence[float] = (0.3, 0.2, 0.1, 0.15, 0.1, 0.15, 0.03)
    focus: float = 1.2
    overflow_weight: float = 10.0

    def sizes_for(self, num_ops: int) -> Sequence[int]:
        """Those of level_sizes that a graph of so many ops gets."""
        return self.level_sizes if num_ops <= LARGE_OPS else self.level_sizes[::2]


@dataclasses.dataclass(frozen=True)
class MultilevelConfig(AnnealingConfig):
    """How chains anneal inside the simulator.

    Attributes:
      rounds: how the time is shared out, where there is enough of it.
      repeated_rounds: the same for a graph that is mostly repeated.
      split_rounds: the same for a split step.
      split_hot: `hot` of a split step, which begins with good placements, data parallel ones.
      full_scale_units: where fewer colocation units than these can be moved, it is hotter.
      burst_seconds: what a proposal takes, about.
      burst_trials: simulations of a chain per proposal where trials are limited, so that the
        result doesn't depend on the clock.
      exchanges: how often in a slot the worse chains take over the best one's placement, in
        rounds that began with a single candidate.
    """

    hot: float = 0.004
    rounds: Sequence[Round] = ROUNDS
    repeated_rounds: Sequence[Round] = REPEATED_ROUNDS
    split_rounds: Sequence[Round] = SPLIT_ROUNDS
    split_hot: float = 0.0005
    full_scale_units: int = 500
    burst_seconds: float = 0.2
    burst_trials: int = 50
    exchanges: int = 8


@dataclasses.dataclass(frozen=True)
class LocalSearchConfig(AnnealingConfig):
    """How local search anneals, asking the evaluator about every placement.

    Attributes:
      first_pass_trials: most trials of the first pass; each pass is twice as long as the one
        before and begins twice as hot, so any budget is used well.
      trials_per_unit: a small graph soon needs no more of the first, cool pass than this for each
        unit that can be moved.
      max_batch: most neighbours proposed at once. All are neighbours of one placement, and those
        after the first that is taken are wasted, so there are fewer while many are taken.
    """

    hot: float = 0.002
    level_sizes: Sequence[int] = (16, 64, 256, 1024)
    first_pass_trials: int = 1000
    trials_per_unit: int = 20
    max_batch: int = 16
