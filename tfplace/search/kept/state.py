"""A search between two updates of its policy, as a file without pickles."""

import dataclasses
import json
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.op_graph import IntArray
from graphs.problem import Infeasible, Measurement, Placement
from graphs.protos import Json, JsonObject
from tfplace.search.kept.snapshot import Snapshot
from tfplace.search.trial import Trial

_POLICY = "policy_state/"


@dataclasses.dataclass(frozen=True)
class StageStart:
    """Where a stage of a search began.

    Attributes:
      number: of the stage, 0, 1, ...
      num_trials, seconds: of the search until then.
      device_of_op: i4[N] the best placement then, None where there was none.
    """

    number: int
    num_trials: int
    seconds: float
    device_of_op: IntArray | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchedSoFar:
    """What a search has found, until now or in the end.

    Attributes:
      best: the best feasible trial, None where there was none.
      best_stage: the stage that found it.
      least_infeasible: an infeasible trial to explain a failure with, or None.
      num_trials: evaluated placements.
      num_infeasible: how many of them can't run.
      seconds: wall time, of all runs together.
      history: [[trial, seconds, best_step_seconds]...], one row per improvement and the end.
      notes: why stages ended early, a sentence each.
      stages: [(name, trials of the search, its seconds)...] at the end of each stage that ran.
    """

    best: Trial | None = None
    best_stage: str = ""
    least_infeasible: Trial | None = None
    num_trials: int = 0
    num_infeasible: int = 0
    seconds: float = 0.0
    history: Sequence[tuple[int, float, float]] = ()
    notes: Sequence[str] = ()
    stages: Sequence[tuple[str, int, float]] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchState(SearchedSoFar):
    """All that a search needs to go on as if it had never stopped."""

    stage: StageStart  # that runs
    policy: Snapshot  # its state; empty before its first update, or where it has none to keep


def to_arrays(state: SearchState, facts: JsonObject) -> Snapshot:
    """The state and some facts as named arrays."""
    values = {
        **facts,
        **{each.name: getattr(state, each.name) for each in dataclasses.fields(SearchedSoFar)},
        "stage": [state.stage.number, state.stage.num_trials, state.stage.seconds],
        "best": _trial_facts(state.best),
        "least_infeasible": _trial_facts(state.least_infeasible),
    }
    # numpy's numbers as Python's.
    arrays = {"facts": np.array(json.dumps(values, default=lambda value: value.item()))}
    for name in ("best", "least_infeasible"):
        trial = getattr(state, name)
        if trial is not None:
            arrays[name] = trial.placement.device_of_op
    if state.stage.device_of_op is not None:
        arrays["stage_start"] = state.stage.device_of_op
    return {**arrays, **{_POLICY + name: array for name, array in state.policy.items()}}


def from_arrays(arrays: Mapping[str, np.ndarray], facts: JsonObject) -> SearchState:
    """What `to_arrays` took.

    Raises:
      KeyError, TypeError, ValueError: something is missing, or of another kind.
    """
    number, num_trials, seconds = facts["stage"]
    start = StageStart(int(number), int(num_trials), float(seconds), arrays.get("stage_start"))
    return SearchState(
        stage=start,
        policy={
            name.removeprefix(_POLICY): array
            for name, array in arrays.items()
            if name.startswith(_POLICY)
        },
        num_trials=int(facts["num_trials"]),
        num_infeasible=int(facts["num_infeasible"]),
        seconds=float(facts["seconds"]),
        best=_trial(Measurement, facts, arrays, "best"),
        best_stage=str(facts["best_stage"]),
        least_infeasible=_trial(Infeasible, facts, arrays, "least_infeasible"),
        history=[(int(row[0]), float(row[1]), float(row[2])) for row in facts["history"]],
        notes=[str(note) for note in facts["notes"]],
        stages=[(str(row[0]), int(row[1]), float(row[2])) for row in facts["stages"]],
    )


def _trial_facts(trial: Trial | None) -> list[Json] | None:
    """All of a trial but its placement."""
    if trial is None:
        return None
    return [trial.index, trial.seconds, dataclasses.asdict(trial.outcome)]


def _trial(
    kind: type[Measurement] | type[Infeasible],
    facts: JsonObject,
    arrays: Mapping[str, np.ndarray],
    name: str,
) -> Trial | None:
    if facts[name] is None:
        return None
    index, seconds, outcome = facts[name]
    known = kind(**{**outcome, "peak_bytes": tuple(outcome["peak_bytes"])})
    return Trial(int(index), float(seconds), Placement(arrays[name]), known)
