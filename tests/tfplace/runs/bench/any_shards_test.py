"""A cell that tries numbers of shards, in process: its row has what others have, and more."""

import pytest

from graphs import zoo
from graphs.errors import ModelError
from tfplace.preparing.options import AUTO
from tfplace.runs.bench.any_shards import keep_model
from tfplace.runs.bench.cell import run_cell


@pytest.mark.parametrize(("algorithm", "order"), [("local_search", "none"), ("auto", "edges")])
def test_numbers_of_shards_are_tried_and_the_bound_holds_for_all(
    tmp_path, monkeypatch, algorithm, order
):
    monkeypatch.setattr(
        "tfplace.choosing.shards.shard_search.least_steps", lambda *_: {}
    )  # all are read
    row = _row(tmp_path, algorithm, order)
    assert row["feasible"] and row["found_shards"] in (1, 2, 4)
    assert 0.0 < row["lower_bound_seconds"] <= row["step_seconds"] * (1.0 + 1e-9)
    assert row["step_seconds"] <= row["single_step_seconds"] * (1.0 + 1e-9)
    assert row["data_parallel_step_seconds"] >= row["lower_bound_seconds"]


def test_where_no_split_step_was_read_the_bound_is_the_unsplit_one_s(tmp_path):
    """So small ops take as long in two shards as whole: their work rules all numbers out."""
    row = _row(tmp_path, "local_search", "none")
    assert row["feasible"] and row["found_shards"] == 1
    assert 0.0 < row["lower_bound_seconds"] <= row["step_seconds"] * (1.0 + 1e-9)
    assert row["data_parallel_step_seconds"] >= row["step_seconds"]  # read after the search


def _row(tmp_path, algorithm, order):
    path = str(tmp_path / "cifar10.pb")
    zoo.write(zoo.build("cifar10", "tiny", batch_size=4), path)
    folder = tmp_path / "cell"
    folder.mkdir()
    keep_model(path, str(folder))
    return run_cell(
        {
            "model": "cifar10", "cluster": "k80x2", "algorithm": algorithm, "seed": 1,
            "max_trials": 40, "budget_seconds": 60.0, "shards": AUTO, "order": order,
            "instance": str(folder), "memory_reserve": 0.1, "num_threads": 1,
        }
    )  # fmt: skip


def test_a_folder_is_kept_whole(tmp_path):
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "saved_model.pb").write_bytes(b"x")
    (tmp_path / "cell").mkdir()
    keep_model(str(tmp_path / "saved"), str(tmp_path / "cell"))
    assert (tmp_path / "cell" / "model" / "saved_model.pb").read_bytes() == b"x"
    with pytest.raises(ModelError, match="No such file"):
        keep_model("/nowhere.pb", str(tmp_path / "other"))
