"""Tests of tfplace.search.kept.snapshot."""

import numpy as np
import pytest
import tensorflow as tf

from tfplace.search.kept import snapshot


def test_variables_come_back():
    variables = [tf.Variable([1.0, 2.0]), tf.Variable(3)]
    taken = snapshot.of_variables("policy", variables)
    variables[0].assign([0.0, 0.0])
    snapshot.into_variables("policy", variables, taken)
    np.testing.assert_array_equal(variables[0], [1.0, 2.0])


def test_another_shape_is_refused():
    taken = snapshot.of_variables("policy", [tf.Variable([1.0, 2.0])])
    with pytest.raises(ValueError, match=r"policy/0 has shape \(2,\), wanted \(3,\)"):
        snapshot.into_variables("policy", [tf.Variable([0.0] * 3)], taken)


def test_generator_goes_on_the_same():
    rng = np.random.default_rng(1)
    rng.normal(size=3)
    state = snapshot.of_generator(rng)
    expected = rng.normal(size=3)
    other = np.random.default_rng(2)
    snapshot.into_generator(other, state)
    np.testing.assert_array_equal(other.normal(size=3), expected)
