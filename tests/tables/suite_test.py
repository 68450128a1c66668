"""`make benchmarks`: runs what is missing and nothing else; each row says where it is from."""

import argparse

import pytest

from graphs.clusters.cluster_file import cluster_from_json
from tests.tables.rewrite_docs import table
from tests.tables.suite import _is_wanted, bound_of, find_bounds, mixed_cluster, order_with, run
from tests.tables.suite_table import ONE_SHOT, OVER, SEARCHED, table_of
from tfplace.algorithms.table import require_known
from tfplace.preparing.options import AUTO

ORIGIN = {"machine": "a fast one", "commit": "abc1234", "transcribed": False}


def _cell(algorithm, seconds, shards=1, seed=1, cluster="k80x2", **more):
    return {
        "model": "rnnlm", "cluster": cluster, "algorithm": algorithm, "seed": seed,
        "shards": shards, "budget_seconds": 5.0, "step_seconds": seconds,
        "order": order_with(shards),
        "single_step_seconds": 2.0, "lower_bound_seconds": 0.5, "commit": "c1", "machine": "m1",
        **more,
    }  # fmt: skip


def test_what_is_known_is_not_run_again():
    ran, kept = [], []

    def bench(model, cluster, algorithms, seeds, shards, budget_seconds):
        ran.append((model, cluster, tuple(algorithms), tuple(seeds), shards))
        return [
            {**_cell(name, 1.0, shards, seeds[0], cluster), "model": model} for name in algorithms
        ]

    wanted = argparse.Namespace(
        models=("rnnlm",), clusters=("k80x2",), seeds=(1, 2), budget_seconds=5.0,
        algorithms=(*ONE_SHOT, *SEARCHED),
    )  # fmt: skip
    run([_cell(name, 1.0) for name in ONE_SHOT[1:]], wanted, kept.append, bench)
    assert ran == [
        ("rnnlm", "k80x2", ("given",), (1,), 1),
        ("rnnlm", "k80x2", SEARCHED, (1,), 1),
        ("rnnlm", "k80x2", SEARCHED, (2,), 1),
        ("rnnlm", "k80x2", ("auto",), (1,), AUTO),
        ("rnnlm", "k80x2", ("auto",), (2,), AUTO),
    ]
    assert len(kept[-1]) == len(ONE_SHOT) + 2 * len(SEARCHED) + 2
    assert kept[-1][-1]["commit"] and kept[-1][-1]["machine"]
    ran.clear()
    run(kept[-1], wanted, kept.append, bench)
    assert ran == []
    wanted.models, wanted.seeds, wanted.algorithms = ("moe",), (1,), ("single", "auto")
    run(kept[-1], wanted, kept.append, bench)
    assert ran == [
        ("moe", "k80x2", ("single",), (1,), 1),
        ("moe", "k80x2", ("auto",), (1,), 1),
        ("moe", "k80x2", ("auto",), (1,), AUTO),
    ]


def test_a_row_has_shares_of_single_the_bound_and_who_made_it():
    cells = [
        _cell("single", 2.0),
        _cell("auto", 1.0),
        _cell("auto", 1.0, AUTO, found_shards=4, data_parallel_step_seconds=1.5),
        _cell("auto", 0.25, AUTO, 2, found_shards=2, data_parallel_step_seconds=1.5),
        _cell("single", 3.0, cluster="k80x4", single_step_seconds=3.0),
    ]
    result = table_of(cells, ORIGIN)
    names = [column["name"] for column in result["columns"]]
    row = dict(zip(names, result["rows"][0], strict=True))
    assert row["single"] == 1.0 and row["auto, unsplit"] == 0.5 and row["m-ETF"] is None
    assert row["auto"] == pytest.approx(0.25) and row["data parallel"] == pytest.approx(0.75)
    assert row[OVER] == pytest.approx(0.5)
    assert row["shards"] == "4/2" and row["bound"] == 0.25 and row["gap, %"] == pytest.approx(0.0)
    assert row["seeds"] == "1, 2" and row["commit, machine"] == "c1, m1"
    mean = dict(zip(names, result["rows"][2], strict=True))
    assert mean["single"] == pytest.approx(1.0) and mean["auto"] is None
    assert mean[OVER] == pytest.approx(0.5)
    assert "| **0.250** | 0.500 | 4/2 |" in table(result)


def test_a_row_has_the_bound_that_was_found_for_any_number_of_shards():
    cells = [_cell("single", 2.0), _cell("auto", 1.0, AUTO, found_shards=1)]
    bound = {"model": "rnnlm", "cluster": "k80x2", "lower_bound_seconds": 0.4}
    result = table_of(cells, ORIGIN, [bound, {**bound, "cluster": "k80x4"}])
    names = [column["name"] for column in result["columns"]]
    row = dict(zip(names, result["rows"][0], strict=True))
    assert row["bound"] == 0.2 and row["gap, %"] == pytest.approx(150.0)
    without = dict(zip(names, table_of(cells, ORIGIN)["rows"][0], strict=True))
    assert without["bound"] == 0.25  # the cell's own


def test_bounds_are_found_anew_and_others_are_kept():
    kept = []

    def bound(model, cluster, description):
        assert (description is None) == (cluster != "mixed")
        return {"model": model, "cluster": cluster, "lower_bound_seconds": 3.0}

    known = [
        {"model": model, "cluster": "k80x2", "lower_bound_seconds": 1.0}
        for model in ("moe", "dlrm")
    ]
    wanted = argparse.Namespace(models=("dlrm",), clusters=("k80x2", "mixed"))
    find_bounds(wanted, known, kept.append, bound)
    assert [each["lower_bound_seconds"] for each in kept[-1]] == [1.0, 3.0, 3.0]
    assert [each["cluster"] for each in kept[-1]] == ["k80x2", "k80x2", "mixed"]
    assert kept[-1][1]["commit"] and len(kept) == 2


def test_a_bound_is_of_the_unsplit_step_and_of_split_ones():
    found = bound_of("cifar10:size=tiny", "k80x2")
    assert found["shards"] == [1, 2] and found["lower_bound_seconds"] > 0.0


def test_its_algorithms_and_its_cluster_are_there():
    for name in (*ONE_SHOT, *SEARCHED):
        require_known(name)
    cluster = cluster_from_json(mixed_cluster())
    speeds = {device.bandwidth_bytes_per_second for device in cluster.devices[1:]}
    assert len(cluster.devices) == 5 and len(speeds) == 2


def test_again_leaves_what_is_not_wanted():
    wanted = argparse.Namespace(
        models=("rnnlm",), clusters=("k80x2",), seeds=(1,), budget_seconds=5.0, algorithms=("auto",)
    )
    assert _is_wanted(_cell("auto", 1.0), wanted)
    for other in ({"algorithm": "etf"}, {"cluster": "k80x4"}, {"seed": 2}, {"model": "moe"}):
        assert not _is_wanted({**_cell("auto", 1.0), **other}, wanted)
