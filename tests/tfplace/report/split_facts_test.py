"""What is said of a split step."""

from graphs import zoo
from tfplace.choosing.data_parallel import data_parallel_baseline
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import prepare
from tfplace.report.inspection import inspect
from tfplace.report.split_facts import split_sentences


def test_a_split_step_is_inspected(tmp_path):
    path = str(tmp_path / "model.pb")
    zoo.write(zoo.build("cifar10", "tiny", batch_size=5), path)
    options = ProblemOptions(path, cluster="k80x2", num_shards=2)
    prepared = prepare(options, trace=False)
    facts = inspect(prepared).split
    assert facts["shards"] == 2 and set(facts["axes"].values()) == {0}
    assert facts["sharded_ops"] > 40 and facts["sums"] > 4 and facts["flops_share"] > 0.9
    said = dict(split_sentences(facts))
    assert said["split"].startswith("into 2 shards: ")
    baseline = data_parallel_baseline(prepared, options)
    assert baseline.num_shards == 2 and baseline.feasible
    assert baseline.num_transfers > 0 and baseline.transfer_bytes > 0


def test_data_parallelism_that_can_not_be_had_says_why(tmp_path):
    path = str(tmp_path / "model.pb")
    zoo.write(zoo.build("cifar10", "tiny", batch_size=2), path)
    options = ProblemOptions(path, cluster="k80x4")
    baseline = data_parallel_baseline(prepare(options, trace=False), options)
    assert not baseline.feasible and "into 4 parts" in baseline.reason
    one = ProblemOptions(path, cluster="local")
    assert data_parallel_baseline(prepare(one, trace=False), one) is None
