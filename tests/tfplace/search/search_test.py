"""The loop keeps the best feasible trial, its limits, and its stages' order."""

import numpy as np
import pytest

from graphs.problem import Infeasible, Measurement
from tfplace.search.search import Limits, Stage, search
from tfplace.search.trial import DivergedError, Proposal


class Scripted:
    """Proposes given rows, batch by batch, and remembers what it learned."""

    def __init__(self, batches):
        self.batches = list(batches)
        self.learned = []

    def propose(self):
        return Proposal(np.array(self.batches.pop(0), dtype=np.int32)) if self.batches else None

    def learn(self, proposal, outcomes):
        self.learned.append([getattr(outcome, "step_seconds", None) for outcome in outcomes])
        return {}


class SumOfDevices:
    """A step takes 1 + the sum of device numbers; device 9 can't run."""

    def evaluate(self, device_of_op):
        return [
            Infeasible("memory", "too full", (int(row.sum()),))
            if 9 in row
            else Measurement(1.0 + float(row.sum()), (), "simulated")
            for row in device_of_op
        ]


def stage(policy, share=1.0, name="scripted"):
    return Stage(name, lambda best: policy, share)


def test_the_best_feasible_trial_wins_and_the_history_has_each_improvement():
    policy = Scripted([[[3, 3], [9, 0]], [[1, 0], [2, 2]]])
    result = search([stage(policy)], SumOfDevices(), Limits(60))
    assert result.best.index == 2 and result.best.placement.device_of_op.tolist() == [1, 0]
    assert (result.num_trials, result.num_infeasible) == (4, 1)
    assert [(row[0], row[2]) for row in result.history] == [(0, 7.0), (2, 2.0), (3, 2.0)]
    assert policy.learned[1] == [2.0, 5.0]


def test_max_trials_is_exact():
    policy = Scripted([[[3, 3], [2, 2]], [[1, 1], [0, 0]]])
    result = search([stage(policy)], SumOfDevices(), Limits(60, max_trials=3))
    assert result.num_trials == 3 and result.best.outcome.step_seconds == 3.0
    assert len(policy.learned) == 1


def test_a_later_stage_starts_from_the_best_and_shares_split_the_trials():
    seen = []
    first = Scripted([[[3, 3]], [[2, 2]], [[1, 1]]])

    def start(best):
        seen.append(best.tolist())
        return Scripted([[[0, 0]]])

    stages = [stage(first, share=0.5), Stage("second", start)]
    result = search(stages, SumOfDevices(), Limits(60, max_trials=4))
    assert seen == [[2, 2]]
    assert result.best_stage == "second" and result.num_trials == 3


def test_where_nothing_runs_the_least_overfull_explains_why():
    policy = Scripted([[[9, 9], [9, 0]]])
    result = search([stage(policy)], SumOfDevices(), Limits(60))
    assert result.best is None
    assert result.least_infeasible.outcome.peak_bytes == (9,)
    assert result.least_infeasible.placement.device_of_op.tolist() == [9, 0]


@pytest.mark.parametrize("limits", [Limits(0.0), Limits(60, max_trials=0)])
def test_no_budget_means_no_trial(limits):
    assert search([stage(Scripted([[[1, 1]]]))], SumOfDevices(), limits).num_trials == 0


class Diverging(Scripted):
    """Its numbers are no numbers any more after the first batch."""

    def learn(self, proposal, outcomes):
        raise DivergedError("training a policy: its loss became nan")


def test_a_policy_that_diverges_ends_its_stage_and_the_next_goes_on(caplog):
    stages = [
        stage(Diverging([[[3]], [[0]]]), name="first"),
        stage(Scripted([[[2]]]), name="second"),
    ]
    result = search(stages, SumOfDevices(), Limits(60.0))
    assert (result.num_trials, result.best_stage) == (2, "second")
    assert result.notes == ("first ended after 1 trial: training a policy: its loss became nan",)
    assert caplog.messages == list(result.notes)
