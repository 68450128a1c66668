"""`make benchmarks`: runs what is missing and nothing else; each row says where it is from."""

import pytest

from graphs.clusters.cluster_file import cluster_from_json
from tests.tables import suite
from tests.tables.rewrite_docs import table
from tests.tables.suite import Wanted, learned_cells, mixed_cluster, order_with, run, suite_cells
from tests.tables.suite_table import (
    LEARNED,
    ONE_SHOT,
    OVER,
    claims_table,
    learned_table,
    suite_table,
)
from tfplace.algorithms.table import require_known
from tfplace.preparing.options import AUTO

ORIGIN = {"machine": "a fast one", "commit": "abc1234", "transcribed": False}


def _cell(algorithm, seconds, shards=1, seed=1, cluster="k80x2", **more):
    return {
        "model": "rnnlm", "cluster": cluster, "algorithm": algorithm, "seed": seed,
        "shards": shards, "max_trials": 50, "budget_seconds": 1e6, "step_seconds": seconds,
        "order": order_with(shards), "trials": 49, "seconds": 2.0, "found_cut": "batch",
        "single_step_seconds": 2.0, "lower_bound_seconds": 0.5, "commit": "c1", "machine": "m1",
        **more,
    }  # fmt: skip


def test_all_rows_come_with_one_seed_before_the_next():
    cells = list(suite_cells({"rnnlm": 50, "moe": 9}, ("k80x2",), (1, 2)))
    assert len(cells) == 2 * (len(ONE_SHOT) + 2 * 3)
    assert [each.seed for each in cells] == sorted(each.seed for each in cells)
    assert {each.algorithm for each in cells if each.seed == 2} == {"local_search", "auto"}
    assert {each.max_trials for each in cells if each.model == "moe"} == {9}
    assert len(list(learned_cells({"rnnlm": 50}, ("k80x2",), (1, 2)))) == 2 + 2 * len(LEARNED)


def test_what_is_known_is_not_run_again(monkeypatch):
    ran, kept = [], []
    commit = "c1"
    monkeypatch.setattr(suite, "origin_of", lambda root: {**ORIGIN, "commit": commit})

    def bench(group):
        ran.append([(each.algorithm, each.seed, each.shards) for each in group])
        return [_cell(each.algorithm, 1.0, each.shards, each.seed) for each in group]

    wanted = list(suite_cells({"rnnlm": 50}, ("k80x2",), (1, 2)))
    run([_cell(name, 1.0) for name in ONE_SHOT[1:]], wanted, kept.append, bench=bench)
    assert ran == [
        [("given", 1, 1), ("local_search", 1, 1), ("auto", 1, 1)],
        [("auto", 1, AUTO)],
        [("local_search", 2, 1), ("auto", 2, 1)],
        [("auto", 2, AUTO)],
    ]
    assert len(kept[-1]) == len(wanted) == len({suite._key(cell) for cell in kept[-1]})
    ran.clear()
    run(kept[-1], wanted, kept.append, bench=bench)
    assert ran == []
    commit = "c2"  # what is whole stays; a row of which something is missing is run anew
    run(kept[-1], wanted, kept.append, bench=bench)
    assert ran == []
    other = _cell("auto", 1.0, cluster="k80x8")
    run([*kept[-1][:-1], other], wanted, kept.append, bench=bench)
    assert sum(map(len, ran)) == len(wanted)
    assert {cell["commit"] for cell in kept[-1] if cell is not other} == {"c2"}
    assert other in kept[-1]


def test_a_cell_that_fails_is_tried_again():
    kept = []
    wanted = [Wanted("rnnlm", "k80x2", name, 1, 1, 50) for name in ("auto", "etf")]
    run([], wanted, kept.append, bench=lambda group: [_cell("etf", 1.0)])
    assert suite.missing(kept[-1], wanted, kept[-1][0]["commit"]) == wanted[:1]


def test_a_row_has_shares_of_single_the_bound_and_who_made_it():
    cells = [
        _cell("single", 2.0),
        _cell("auto", 1.0),
        _cell("auto", 1.0, AUTO, found_shards=4, data_parallel_step_seconds=1.5),
        _cell("auto", 0.25, AUTO, 2, found_shards=2, data_parallel_step_seconds=1.5,
              found_cut="weights"),
        _cell("single", 3.0, cluster="k80x4", single_step_seconds=3.0),
    ]  # fmt: skip
    result = suite_table(cells, ORIGIN)
    names = [column["name"] for column in result["columns"]]
    row = dict(zip(names, result["rows"][0], strict=True))
    assert row["single"] == 1.0 and row["auto, unsplit"] == 0.5 and row["m-ETF"] is None
    assert row["auto"] == pytest.approx(0.25) and row["data parallel"] == pytest.approx(0.75)
    assert row[OVER] == pytest.approx(0.5) and row["trials"] == 50
    assert row["bound"] == 0.25 and row["gap, %"] == pytest.approx(0.0)
    assert row["shards"] == "4/2 of weights"
    assert row["seeds"] == "1, 2" and row["commit"] == "c1"
    mean = dict(zip(names, result["rows"][2], strict=True))
    assert mean["single"] == pytest.approx(1.0) and mean["auto"] is None and mean[OVER] is None
    assert "| **0.250** | 0.500 | 4/2 of weights |" in table(result)


def test_a_row_of_the_published_systems():
    cells = [_cell(name, 1.0 + n / 10.0) for n, name in enumerate(LEARNED)]
    result = learned_table(cells, ORIGIN)
    found = [0.5, 0.55, 0.6, 0.65, 0.7, 0.75]
    assert result["rows"][0][2:] == [50, None, None, *found, 0.25, "1", "c1"]


def test_claims_are_of_runs_that_differ_in_the_system_alone():
    def of(name, seconds, seed, history=()):
        return _cell(name, seconds, seed=seed, history=history, model="cifar10")

    cells = [
        of("colocrl", 1.0, 1, [[0, 3.0], [99, 1.0]]),
        of("spotlight", 0.5, 1, [[0, 0.5]]),
        of("placeto", 0.9, 1, [[9, 1.0], [80, 0.9]]),
        of("colocrl", 1.0, 2, [[9, 1.0]]),
        of("spotlight", 2.0, 2, [[9, 2.0]]),
        of("placeto", 1.5, 2, [[9, 1.5]]),
    ]
    rows = {row[0]: row[2:] for row in claims_table(cells, ORIGIN)["rows"]}
    assert rows["Spotlight's step over ColocRL's, CIFAR-10"] == ["100.0 %", "50.0 %", "200.0 %", 2]
    assert rows["placements of ColocRL over Placeto's to as good a step"] == [*["10.0x"] * 3, 1]
    assert rows["Post's step over HDP's"] == ["", "", "", 0]


def test_its_algorithms_and_its_cluster_are_there():
    for name in (*ONE_SHOT, *LEARNED, "local_search", "auto"):
        require_known(name)
    cluster = cluster_from_json(mixed_cluster())
    speeds = {device.bandwidth_bytes_per_second for device in cluster.devices[1:]}
    assert len(cluster.devices) == 5 and len(speeds) == 2
