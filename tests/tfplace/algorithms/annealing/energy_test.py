"""Tests of tfplace.algorithms.annealing.annealing_problem."""

import math

import numpy as np
import pytest

from graphs.problem import Infeasible, Measurement
from tfplace.algorithms.annealing.annealing_problem import (
    CANNOT_RUN,
    Energy,
    energy_from,
    energy_of,
    memory_penalty,
)

USABLE = np.array([100.0, 50.0])


@pytest.mark.parametrize(
    ("peaks", "penalty"),
    [((100, 50), 1.0), ((101, 50), 2.0 + 10.0 * 0.01), ((150, 75), 2.0 + 10.0 * (0.5 + 0.5))],
)
def test_the_penalty_begins_at_two_and_grows_with_the_share_of_memory_that_is_missing(
    peaks, penalty
):
    assert memory_penalty(np.array(peaks), USABLE, 10.0) == pytest.approx(penalty)


def test_a_device_without_memory_is_no_division_by_zero():
    assert memory_penalty(np.array([3]), np.array([0.0]), 1.0) == 2.0 + 3.0


def test_energies_of_outcomes():
    def energy(outcome):
        return energy_of(outcome, USABLE, 10.0)

    assert energy(Measurement(3.0, (999, 999), "measured")) == (False, 3.0)
    assert energy(Infeasible("memory", "", (150, 50), 3.0)) == (True, 3.0 * 7.0)
    assert energy(Infeasible("memory", "nobody knows how much")) == CANNOT_RUN
    assert energy(Infeasible("no_kernel", "", (150, 50), 3.0)) == CANNOT_RUN


def test_what_can_run_is_better_than_anything_else():
    energies = [Energy(True, 2.0), Energy(False, 9.0), CANNOT_RUN, Energy(False, 1.0)]
    assert sorted(energies) == [energies[3], energies[1], energies[0], CANNOT_RUN]


@pytest.mark.parametrize("energy", [Energy(False, 0.25), CANNOT_RUN, Energy(True, math.pi)])
def test_energies_come_back_from_arrays(energy):
    assert energy_from(np.array(energy)) == energy
