"""What step times of several placements say of the machine: Gauss-Newton, with the simulator.

It maximises the posterior of θ: with r_p = log(measured_p) - log(predicted_p(θ)) and s_p its
standard deviation, the sum of Student-t log densities of r_p / s_p and of the normal one of θ
around the machine as taken. Student's t, so that a placement that the simulator can't explain, or
that noise has hit, bends nothing (Lange, Little and Taylor, Robust Statistical Modeling Using the t
Distribution, 1989). Derivatives are secants: a makespan has steps.
"""

import dataclasses

import numpy as np

from graphs.op_graph import FloatArray, IntArray
from tfplace.choosing.forward_model import ForwardModel
from tfplace.choosing.run_results import LEAST_MISS, Corrections

FREEDOM = 4.0
"""Degrees of freedom of Student's t: the fewer, the less an outlier counts."""
MOST_MISS = 0.3
"""Share by which a right machine's predictions still miss steps, from placement to placement."""
_SD_OF_MAD = 1.4826
SECANT, ITERATIONS, HALVINGS = 0.1, 8, 4
SLOWER = 8.0
"""A second beginning has links slower by this: a slow device looks much like slow links."""
CONTRADICTED = 3.0
"""By so much (twenty-fold) the runs have to be likelier, before what was taught is forgotten."""
ENOUGH = 0.02
"""A step of θ, in spreads, below which another one changes nothing."""


def estimate(
    model: ForwardModel, placements: IntArray, seconds: FloatArray, noise: FloatArray
) -> Corrections:
    """The machine that explains measured steps best and differs least from the one taken.

    Where earlier runs have taught the machine, and these steps contradict that beyond its
    intervals, what they taught is forgotten.

    Args:
      placements: i4[P, N].
      seconds: f8[P] measured.
      noise: f8[P] standard deviation of log(seconds).
    """
    steps = placements, np.log(seconds), noise
    found = _fitted(model, *steps)
    if model.has_been_taught:
        without = _fitted(model.forgetting(), *steps)
        # By how much the log posterior of one is better, where both may miss as much as it does.
        scale = np.hypot(noise, without.corrections.missed)
        losses = [
            _Fit(each.corrections.model, *steps[:2], scale).loss(
                each.corrections.theta, each.residual
            )
            for each in (found, without)
        ]
        if losses[0] - losses[1] > CONTRADICTED:
            return without.corrections
    return found.corrections


@dataclasses.dataclass(frozen=True)
class _Found:
    """Attributes: corrections: the most plausible machine; residual: f8[P] left unexplained."""

    corrections: Corrections
    residual: FloatArray


def _fitted(
    model: ForwardModel, placements: IntArray, log_seconds: FloatArray, noise: FloatArray
) -> _Found:
    fit = _Fit(model, placements, log_seconds, np.hypot(noise, LEAST_MISS))
    found = [fit.best_from(start) for start in (model.as_taken, model.with_slower_links(SLOWER))]
    theta, residual = min(found, key=lambda each: fit.loss(*each))
    # The share by which predictions miss half of the steps; few steps can't show all of it.
    freedom = len(residual) / max(len(residual) - len(theta), 1)
    spread = _SD_OF_MAD * float(np.median(np.abs(residual))) * np.sqrt(freedom)
    missed = float(np.clip(spread, LEAST_MISS, MOST_MISS))
    if missed > LEAST_MISS:  # then less is known than it seems
        fit = _Fit(model, placements, log_seconds, np.hypot(noise, missed))
        theta, residual = fit.best_from(theta)
    return _Found(Corrections(model, theta, fit.covariance(theta, residual), missed), residual)


class _Fit:
    """One estimation's residuals, derivatives and steps."""

    def __init__(
        self, model: ForwardModel, placements: IntArray, log_seconds: FloatArray, scale: FloatArray
    ) -> None:
        self._model, self._placements = model, placements
        self._log_seconds, self._scale = log_seconds, scale
        self._precision = np.linalg.inv(model.covariance)

    def best_from(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The most plausible machine, and what it leaves unexplained."""
        residual = self.residual(theta)
        for _ in range(ITERATIONS):
            theta, residual, moved = self.walked(theta, residual, self.step(theta, residual))
            if moved < ENOUGH:
                break
        return theta, residual

    def residual(self, theta: FloatArray) -> FloatArray:
        return np.asarray(self._log_seconds - np.log(self._model.seconds(theta, self._placements)))

    def loss(self, theta: FloatArray, residual: FloatArray) -> float:
        """Minus the log posterior, but for a constant."""
        misfit = np.log1p((residual / self._scale) ** 2 / FREEDOM).sum() * (FREEDOM + 1) / 2
        moved = theta - self._model.as_taken
        return float(misfit + moved @ self._precision @ moved / 2)

    def step(self, theta: FloatArray, residual: FloatArray) -> FloatArray:
        slopes, weight = self._slopes(theta, residual), self._weight(residual)
        gradient = slopes.T @ (weight * residual) - self._precision @ (theta - self._model.as_taken)
        return np.asarray(np.linalg.solve(self._information(slopes, weight), gradient))

    def walked(
        self, theta: FloatArray, residual: FloatArray, step: FloatArray
    ) -> tuple[FloatArray, FloatArray, float]:
        """The step, halved until it gains; how far it went, in spreads."""
        before = self.loss(theta, residual)
        for halving in range(HALVINGS):
            tried = np.maximum(theta + step / 2**halving, self._model.least)
            found = self.residual(tried)
            if self.loss(tried, found) < before:
                return tried, found, float(np.max(np.abs(tried - theta) / self._model.spread))
        return theta, residual, 0.0

    def covariance(self, theta: FloatArray, residual: FloatArray) -> FloatArray:
        information = self._information(self._slopes(theta, residual), self._weight(residual))
        return np.asarray(np.linalg.inv(information))

    def _information(self, slopes: FloatArray, weight: FloatArray) -> FloatArray:
        return np.asarray(slopes.T @ (weight[:, None] * slopes) + self._precision)

    def _slopes(self, theta: FloatArray, residual: FloatArray) -> FloatArray:
        """f8[P, K] of log(predicted); secants are steep or flat as the makespan's steps lie."""
        moved = theta + SECANT * np.eye(len(theta))
        return np.stack([(residual - self.residual(each)) / SECANT for each in moved], axis=1)

    def _weight(self, residual: FloatArray) -> FloatArray:
        freed = (FREEDOM + 1) / (FREEDOM + (residual / self._scale) ** 2)
        return np.asarray(freed / self._scale**2)
