"""What an algorithm gets: a problem, and the placements that came with the model."""

import dataclasses
import functools
from pathlib import Path

import numpy as np

from graphs.op_graph import IntArray
from graphs.problem import Problem
from graphs.problem_file import read_problem, write_problem


@dataclasses.dataclass(frozen=True)
class Instance:
    """A problem of placement.

    Attributes:
      problem: what is to be placed.
      given: i4[N] where the model's own device strings put it.
      expert: i4[N] where the papers' experts put it, None where nobody says.
    """

    problem: Problem
    given: IntArray
    expert: IntArray | None = None

    @functools.cached_property
    def one_shots(self) -> dict[tuple[str, int], IntArray]:
        """{(algorithm, seed): i4[B, N]} of one-shot algorithms that have run on this instance.

        Several parts of a run begin with the same placements: baselines, and what annealing
        starts from. The algorithms' table fills this in, so that each is computed once. A
        changed instance (dataclasses.replace) begins with an empty one.
        """
        return {}


def write_instance(folder: str, instance: Instance) -> None:
    """Writes an instance for another process."""
    write_problem(str(Path(folder, "problem.npz")), instance.problem, instance.given)
    if instance.expert is not None:
        np.save(Path(folder, "expert.npy"), instance.expert)


def read_instance(folder: str) -> Instance:
    """Reads what `write_instance` wrote."""
    problem, given = read_problem(str(Path(folder, "problem.npz")))
    expert = Path(folder, "expert.npy")
    return Instance(problem, given, np.load(expert) if expert.exists() else None)
