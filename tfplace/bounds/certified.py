"""A linear program's value from below, whatever its solver's tolerances are."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

from graphs.op_graph import FloatArray


class Rows:
    """Inequalities: a sum of coefficients times variables is at least a number."""

    def __init__(self) -> None:
        self._row: list[int] = []
        self._column: list[int] = []
        self._value: list[float] = []
        self._least: list[float] = []

    def add(self, terms: Iterable[tuple[int, float]], least: float) -> None:
        """Adds one; a variable may come several times."""
        row = len(self._least)
        for column, value in terms:
            self._row.append(row)
            self._column.append(column)
            self._value.append(value)
        self._least.append(least)

    def least_of(self, variable: int, most: FloatArray) -> float:
        """What a variable is at least, where each lies between 0 and `most`; 0.0 if none is found.

        For any prices p >= 0 of the rows A x >= b, a point that obeys them has
        x_v >= p b + sum over j of min(0, (e_v - p A)_j) most_j. HiGHS only proposes the prices.
        """
        matrix = csr_matrix((self._value, (self._row, self._column)), (len(self._least), len(most)))
        least, goal = np.array(self._least), np.zeros(len(most))
        goal[variable] = 1.0
        bounds = np.stack([np.zeros(len(most)), most], axis=1)
        solved = linprog(goal, A_ub=-matrix, b_ub=-least, bounds=bounds, method="highs-ipm")
        if solved.x is None:
            return 0.0
        prices = np.maximum(-solved.ineqlin.marginals, 0.0)
        reduced = goal - matrix.T @ prices
        return float(prices @ least + np.minimum(reduced, 0.0) @ most)
