"""Whether ops are timed before a search."""

import pytest
import tensorflow as tf

from tfplace.preparing import prepare as preparing
from tfplace.preparing.options import ProblemOptions


@pytest.mark.parametrize(
    ("cluster", "budget_seconds", "is_timed"),
    [("local", 5.0, True), ("local", 1.0, False), ("workers:2", 1.0, True)],
)
def test_ops_of_one_device_are_timed_where_the_budget_lets_them(
    cluster, budget_seconds, is_timed, tmp_path, monkeypatch
):
    """Priced without a run, a small step on a CPU takes microseconds."""
    with tf.Graph().as_default() as graph:
        tf.tanh(tf.compat.v1.placeholder(tf.float32, [4, 4], name="x"), name="y")
    (tmp_path / "m.pb").write_bytes(graph.as_graph_def().SerializeToString())
    asked = []
    find_costs = preparing.__dict__["find_costs"]

    def found(model, cluster, trace, *others):
        asked.append(trace)
        return find_costs(model, cluster, False, *others)

    monkeypatch.setattr(preparing, "find_costs", found)
    options = ProblemOptions(str(tmp_path / "m.pb"), cluster=cluster)
    preparing.prepare(options, budget_seconds=budget_seconds)
    assert asked == [is_timed]
