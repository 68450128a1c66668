"""Tests of tfplace.algorithms.learned.learning.policy_gradient."""

import numpy as np
import pytest

from tfplace.algorithms.learned.learning.policy_gradient import require_finite
from tfplace.search.trial import DivergedError


def test_numbers_pass():
    require_finite("a policy", {"loss": 1.5, "log-probability": np.array([[0.0, -1e9]])})


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), np.array([[0.0, -np.inf]])])
def test_what_is_no_number_is_named(bad):
    with pytest.raises(DivergedError, match=r"training a policy: its loss became (nan|-?inf)"):
        require_finite("a policy", {"entropy": 0.5, "loss": bad})
