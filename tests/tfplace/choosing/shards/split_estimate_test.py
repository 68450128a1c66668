"""What a step takes at least when it is split, against the step as it is really split."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from graphs import zoo
from rewrite.split.split_model import StepToSplit
from tests.tables.suite import mixed_cluster
from tfplace.bounds.load_bound import best_weights, load_of
from tfplace.bounds.relaxation import device_classes
from tfplace.choosing.shards.split_estimate import least_steps, promising_pieces
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import prepare

COUNTS = (2, 4)


def _work(prepared):
    """What the devices take at least for the ops of a step that was read."""
    problem = prepared.problem
    everything = np.ones(problem.num_ops, bool)
    return best_weights(load_of(device_classes(problem), problem.graph, everything))[0]


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    folder = tmp_path_factory.mktemp("estimate")
    model, cluster = str(folder / "model.pb"), folder / "mixed.json"
    zoo.write(zoo.build("rnnlm", "tiny", batch_size=8, hidden_size=512), model)
    cluster.write_text(json.dumps(mixed_cluster()))
    return ProblemOptions(model, cluster=str(cluster))


@pytest.mark.parametrize(("is_by_class", "least"), [(False, 0.9), (True, 0.6)])
def test_the_work_of_more_shards_is_known_before_they_are_read(
    options, is_by_class, least, tmp_path
):
    """Less so by class of kernel: small kernels fill a GPU less, which the estimate leaves out."""
    value = json.loads(Path(options.cluster).read_text())
    for device in value["devices"] if not is_by_class else ():
        device.pop("precision", None)
    (tmp_path / "cluster.json").write_text(json.dumps(value))
    options = dataclasses.replace(options, cluster=str(tmp_path / "cluster.json"))
    whole = prepare(options)
    found = least_steps(whole, None, COUNTS)
    assert [*found] == [*COUNTS]
    for count in COUNTS:
        true = _work(prepare(dataclasses.replace(options, num_shards=count)))
        assert true > 1.2 * _work(whole)  # small shards read all weights again
        assert least * true < found[count] < 1.01 * true


def test_nothing_is_said_of_timed_ops_or_of_what_cannot_be_split(options):
    whole = prepare(options)
    timed = dataclasses.replace(whole.costs, source="measured")
    assert least_steps(dataclasses.replace(whole, costs=timed), None, COUNTS) == {}
    made_up = StepToSplit(dataclasses.replace(whole.source, origins={}))
    assert least_steps(dataclasses.replace(whole, to_split=made_up), None, COUNTS) == {}
    assert least_steps(whole, {"no_such_input": 0}, COUNTS) == {}


@pytest.mark.parametrize(
    ("network", "options", "wanted"),
    [
        ("rnnlm", {"num_steps": 6, "hidden_size": 1024}, [2, 8]),  # two layers, a step apart
        ("alexnet", {}, [8]),  # one layer after another
    ],
)
def test_weights_are_cut_into_fewer_pieces_where_layers_work_beside_each_other(
    tmp_path, network, options, wanted
):
    model = str(tmp_path / "model.pb")
    size = ("tiny",) if network == "rnnlm" else ()
    zoo.write(zoo.build(network, *size, **options), model)
    prepared = prepare(ProblemOptions(model, cluster="v100x8"), trace=False)
    assert [each for each, _ in promising_pieces(prepared, 8)] == wanted
