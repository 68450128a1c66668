"""How annealing goes about it; decisions 017 to 019 have the figures behind the defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tfplace.algorithms.annealing.plan import Round

# Many short runs, since two runs from the same placement end up to a tenth apart; then long ones
# from the best of them, half of the time exactly.
ROUNDS = (
    Round(16, is_fused=True, weight=0.75),
    Round(1, is_fused=True, weight=2.25),
    Round(1, weight=3.0),
)


@dataclasses.dataclass(frozen=True)
class MultilevelConfig:
    """How the chains anneal.

    Attributes:
      level_sizes: groups per level, coarse to fine; colocation units come last. A level that the
        graph is too small for is left out.
      kind_weights: [K] how often each kind of move is drawn, in the order of `moves`.
      rounds: how the time is shared out, where there is enough of it.
      hot: temperature at the start of a run, as a share of the step time: a worse placement is
        taken with the chance exp(-ln(new / old) / temperature). Where fewer than
        `full_scale_units` units can be moved it is higher, since each move changes more.
      hottest: what it rises to at most.
      cold: temperature at the end of a run; it rises with `hot`.
      full_scale_units: colocation units.
      focus: width in levels of the bell that says how often each level is drawn; its middle moves
        from the coarsest to the finest level during a run.
      burst_seconds: what a proposal takes, about.
      burst_trials: simulations of a chain per proposal where trials are limited, so that the
        result doesn't depend on the clock.
      exchanges: how often in a slot the worse chains take over the best one's placement, in
        rounds that began with a single candidate.
      overflow_weight: see `energy.memory_penalty`.
    """

    level_sizes: Sequence[int] = (16, 24, 64, 96, 256, 384, 1024)
    kind_weights: Sequence[float] = (0.3, 0.2, 0.1, 0.15, 0.1, 0.15, 0.03)
    rounds: Sequence[Round] = ROUNDS
    hot: float = 0.004
    hottest: float = 0.1
    cold: float = 0.0002
    full_scale_units: int = 500
    focus: float = 1.2
    burst_seconds: float = 0.2
    burst_trials: int = 50
    exchanges: int = 8
    overflow_weight: float = 10.0
