import math

import pytest
import tensorflow as tf

from tfplace.progress import Progress
from tfplace.report.tensorboard.hparams import session_end, session_start
from tfplace.report.tensorboard.search_log import SearchLog, row_of
from tfplace.search.search import SearchMoment


def progress(trials, infeasible, seconds, best=2.0, mean=3.0, **scalars):
    return SearchMoment("post", trials, infeasible, seconds, best, scalars, mean)


def test_shares_and_rates_are_since_the_row_before():
    first = progress(10, 5, 2.0, math.inf, math.nan)
    assert row_of(first, None) == pytest.approx(
        {
            "search/best_step_seconds": math.inf,
            "search/mean_step_seconds": math.nan,
            "search/infeasible_share": 0.5,
            "search/trials_per_second": 5.0,
        },
        nan_ok=True,
    )
    second = progress(30, 10, 2.5, kl=0.25, entropy=1.5)
    assert row_of(second, first) == {
        "search/best_step_seconds": 2.0,
        "search/mean_step_seconds": 3.0,
        "search/infeasible_share": 0.25,
        "search/trials_per_second": 40.0,
        "policy/kl": 0.25,
        "policy/entropy": 1.5,
    }
    again = row_of(second, second)
    assert again["search/infeasible_share"] is None and again["search/trials_per_second"] is None


def test_rows_are_few_and_the_last_is_among_them(tmp_path):
    now, seen = [0.0], []

    class Shown(Progress):
        def search(self, progress):
            seen.append(progress.num_trials)

    log = SearchLog(str(tmp_path / "run"), Shown(), {"seed": 3}, lambda: now[0])
    with log.working(1.0):
        for trial in range(1, 8):
            now[0] = trial * 0.1
            log.search(progress(trial, 0, now[0], best=math.inf if trial < 4 else 2.0))
    log._writer.close()
    assert seen == list(range(1, 8))
    (file,) = (tmp_path / "run").iterdir()
    rows = [
        (event.step, {value.tag: tf.make_ndarray(value.tensor) for value in event.summary.value})
        for event in tf.compat.v1.train.summary_iterator(str(file))
        if event.summary.value and not event.summary.value[0].tag.startswith("_hparams_")
    ]
    assert [step for step, _ in rows] == [1, 4, 7]
    assert "search/best_step_seconds" not in rows[0][1]
    assert float(rows[2][1]["search/best_step_seconds"]) == 2.0
    assert float(rows[2][1]["search/trials_per_second"]) == pytest.approx(10.0)


def test_hyper_parameters_are_on_the_wire_as_the_plugin_reads_them():
    # plugin_data.proto: field 3 is SessionStartInfo {1: map<string, Value>, 5: double}, field 4
    # SessionEndInfo {1: status, 2: double}; a Value's number is field 2, a string field 3.
    (value,) = session_start({"a": 1}, 2.0).value
    assert value.tag == "_hparams_/session_start_info"
    assert value.metadata.plugin_data.plugin_name == "hparams"
    assert value.metadata.plugin_data.content.hex() == (
        "1a19" "0a0e" "0a0161" "1209" "11000000000000f03f" "290000000000000040"
    )  # fmt: skip
    (value,) = session_end(2.0).value
    assert value.metadata.plugin_data.content.hex() == "220b0801110000000000000040"
    (value,) = session_start({"b": "c", "d": True}, 0.0).value
    assert bytes.fromhex("0a016212031a0163") in value.metadata.plugin_data.content
    assert bytes.fromhex("0a016412022001") in value.metadata.plugin_data.content
