"""Tests of tfplace.compilation.warm_up: what it leaves to compile, and what it does without."""

import subprocess
import sys

import numpy as np
import pytest
from numba.core import event

from tests.builders import random_graph, with_executor
from tests.reference_simulator import reference_run
from tfplace.algorithms.table import stages_of
from tfplace.bounds.lower_bound import lower_bound_seconds
from tfplace.choosing.baselines import baseline_candidates
from tfplace.cli import main
from tfplace.compilation import ahead, warm_up
from tfplace.search.instance import Instance
from tfplace.search.search import Limits, search
from tfplace.simulation.evaluator import SimulatingEvaluator
from tfplace.simulation.simulator import Simulator


def _searched(problem):
    """What `optimize` does in compiled code."""
    instance = Instance(problem, np.zeros(problem.num_ops, dtype=np.int32))
    evaluator = SimulatingEvaluator(problem)
    baseline_candidates(instance, evaluator, 5.0, 0)
    stages = stages_of("auto", instance, 0, instance.given)[:1]
    search(stages, evaluator, Limits(np.inf, 2000))
    lower_bound_seconds(problem)
    Simulator(problem).schedule(instance.given)


@pytest.mark.parametrize("kind", ahead.KINDS)
def test_after_it_nothing_is_left_to_compile(kind):
    problem = random_graph(40)
    if kind == ahead.WITH_EXECUTOR:
        turns = [range(40), range(39, -1, -1)]
        problem = with_executor(problem, (1e-3, 1e-6), (1e-3, 1e-6), (), [0.1] * 40, turns)
    assert ahead.kind_of(problem) == kind
    warm_up.warm_up(kind)
    with event.install_recorder("numba:compile") as compiled:
        _searched(problem)
    assert not compiled.buffer


def test_the_command_compiles_nothing_after_it(tiny_rnnlm, tmp_path):
    warm_up.warm_up(ahead.RULES_1_TO_6)
    words = ["optimize", tiny_rnnlm, "--cluster=k80x2", "--budget_seconds=3", "--verbosity=-1"]
    with event.install_recorder("numba:compile") as compiled:
        assert main([*words, f"--output_dir={tmp_path / 'out'}"]) == 0
    assert not compiled.buffer


@pytest.mark.parametrize("kind", ahead.KINDS)
def test_the_tiny_problem_is_one_that_can_be_simulated(kind):
    problem = warm_up.tiny_problem(kind)
    placement = np.arange(problem.num_ops, dtype=np.int32) % 3
    makespan, peaks = Simulator(problem).run(placement)
    wanted_makespan, wanted_peaks = reference_run(problem, placement.tolist())
    assert makespan == pytest.approx(wanted_makespan)
    assert peaks.tolist() == wanted_peaks


def test_what_is_noted_is_not_done_again(monkeypatch):
    done = []
    monkeypatch.setattr(warm_up, "is_compiled", lambda kind, part: part == ahead.ANNEALING)
    monkeypatch.setattr(warm_up, "note_compiled", lambda *noted: done.append(noted))
    warm_up.warm_up(ahead.RULES_1_TO_6)
    assert done == [(ahead.RULES_1_TO_6, ahead.STARTS_AND_BOUNDS)]


def test_it_does_not_import_tensorflow():
    code = "import sys, tfplace.compilation.warm_up; sys.exit('tensorflow' in sys.modules)"
    subprocess.run([sys.executable, "-P", "-c", code], check=True)
