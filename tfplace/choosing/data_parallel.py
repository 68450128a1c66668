"""What plain data parallelism over the same devices would take: a baseline of training steps.

The step is split into as many shards as there are devices that compute, and simulated with shard m
on device m (the contract, section 9).
"""

import dataclasses
import math
from collections.abc import Callable

from graphs.errors import NothingToSplitError, TfplaceError
from graphs.problem import Problem
from tfplace.algorithms.placers.legal import working_devices
from tfplace.algorithms.table import one_shot
from tfplace.budget import PARTS
from tfplace.choosing.baselines import Baseline, Candidate, as_reported, predicted
from tfplace.choosing.memory_limit import limited_to
from tfplace.choosing.ties import moved_tensors
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import PreparedModel, prepare
from tfplace.simulation.simulated import simulated

NAME = "data_parallel"


@dataclasses.dataclass(frozen=True)
class DataParallel(Baseline):
    """Plain data parallelism, simulated.

    Attributes:
      num_shards: how many parts the batch has, one for each device that computes.
      num_transfers: tensors that a step moves between devices.
      transfer_bytes: their bytes.
    """

    num_shards: int = 0
    num_transfers: int = 0
    transfer_bytes: int = 0


def data_parallel_candidate(prepared: PreparedModel, seed: int = 0) -> Candidate | None:
    """The placement for a step that is split into as many shards as devices compute; else None."""
    if not _is_split_for_all(prepared):
        return None
    placement = one_shot(NAME, prepared.instance, seed)[0]
    return Candidate(NAME, placement, simulated(prepared.problem, placement).outcome)


@dataclasses.dataclass(frozen=True)
class EvenSplit:
    """A step that is split for all its devices, and the placement of a shard on each."""

    problem: Problem
    candidate: Candidate

    def on(self, corrected: Callable[[Problem], Problem]) -> "EvenSplit":
        """The same on the machine as real runs have shown it."""
        problem = corrected(self.problem)
        return EvenSplit(problem, predicted(problem, [self.candidate])[0])

    def reported(self) -> DataParallel:
        """What was simulated of it, as report.json has it."""
        known = as_reported(self.candidate, self.problem)
        moved = moved_tensors(self.problem, self.candidate.device_of_op)
        return DataParallel(
            **vars(known),
            num_shards=len(working_devices(self.problem)),
            num_transfers=len(moved),
            transfer_bytes=int(self.problem.graph.tensor_bytes[moved].sum()),
        )


def not_tried(prepared: PreparedModel) -> DataParallel | None:
    """The baseline where there was no time for it; None for inference, or one device."""
    num_shards = len(working_devices(prepared.problem))
    if prepared.source.mode != "train" or num_shards < 2:
        return None
    return DataParallel(None, False, "not tried: no time was left", {}, num_shards)


def data_parallel_baseline(
    prepared: PreparedModel,
    options: ProblemOptions,
    seconds: float = math.inf,
    corrected: Callable[[Problem], Problem] = lambda problem: problem,
) -> DataParallel | None:
    """What a training step would take; None for inference, one device, or where nothing is split.

    Args:
      prepared: the problem that is searched, split or not.
      seconds: what timing the ops of a step that has to be split for it may take; none, and it is
        left out.
      corrected: makes another problem one of the machine as real runs have shown it.
    """
    nothing, num_shards = not_tried(prepared), len(working_devices(prepared.problem))
    if nothing is None:
        return None
    if not _is_split_for_all(prepared):
        if seconds <= 0.0:
            return nothing
        searched, num_kinds = prepared, len({*prepared.problem.device_types})
        limit = min(seconds, PARTS["timing_even_split"].most) / num_kinds
        try:
            split = dataclasses.replace(options, num_shards=num_shards, left_whole=())
            is_timed = searched.costs.source != "analytic"
            prepared = prepare(split, is_timed, trace_seconds=limit, earlier=prepared)
            problem = corrected(prepared.problem)
            if searched.unlimited is not None:  # on the devices that --max_devices has chosen
                problem = limited_to(problem, working_devices(searched.problem).tolist())
        except NothingToSplitError:
            return None
        except TfplaceError as error:
            return DataParallel(None, False, str(error), {}, num_shards)
        if prepared.costs.source == "analytic" != searched.costs.source:
            why = "not tried: no time was left to time its ops"
            return DataParallel(None, False, why, {}, num_shards)
        prepared = dataclasses.replace(prepared, problem=problem)
    candidate = data_parallel_candidate(prepared, options.seed)
    return None if candidate is None else EvenSplit(prepared.problem, candidate).reported()


def _is_split_for_all(prepared: PreparedModel) -> bool:
    """Whether every device that computes has a shard, with a copy of all that can be split."""
    split = prepared.split
    if split is None or split.decisions.num_left_whole:
        return False
    return split.num_shards == len(working_devices(prepared.problem))
