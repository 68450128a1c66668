"""Event files of a search: rows, the result, the placed graph, hyper-parameters."""

import dataclasses
import math
import sys
import time

import pytest
import tensorflow as tf

from graphs.errors import OutputError
from tests.builders import chain
from tests.tfplace.report.made_up import made_up
from tfplace.preparing.options import OptimizeOptions, ProblemOptions
from tfplace.preparing.prepare import prepare
from tfplace.progress import Progress
from tfplace.report.tensorboard.search_log import SearchLog, row_of, run_folder
from tfplace.search.search import SearchMoment


def moment(trials, infeasible, seconds, best=2.0, mean=3.0, **scalars):
    return SearchMoment("post", trials, infeasible, seconds, best, scalars, mean)


def test_shares_and_rates_are_since_the_row_before():
    first = moment(10, 5, 2.0, math.inf, math.nan)
    assert row_of(first, None) == pytest.approx(
        {
            "search/best_step_seconds": math.inf,
            "search/mean_step_seconds": math.nan,
            "search/infeasible_share": 0.5,
            "search/trials_per_second": 5.0,
        },
        nan_ok=True,
    )
    second = moment(30, 10, 2.5, kl=0.25, entropy=1.5)
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


def test_a_place_that_can_not_be_written_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="writing --logdir: TensorFlow can't write events to"):
        SearchLog(str(tmp_path / "file" / "run"), Progress(), {})


def test_rows_are_few_and_the_last_is_among_them(tmp_path):
    now, seen = [0.0], []

    class Shown(Progress):
        def search(self, moment):
            seen.append(moment.num_trials)

    log = SearchLog(str(tmp_path / "run"), Shown(), {"seed": 3}, lambda: now[0])
    with log.working(1.0):
        for trial in range(1, 8):
            now[0] = trial * 0.1
            log.search(moment(trial, 0, now[0], best=math.inf if trial < 4 else 2.0))
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


def report_of_three_trials():
    """The part of a report that the log's end writes."""
    report, _ = made_up(chain(2), [0, 1])
    return dataclasses.replace(report, search={"num_trials": 3})


def finished(folder, prepared, hparams=None):
    log = SearchLog(str(folder), Progress(), hparams or {"seed": 3})
    log.finish(prepared, prepared.given, report_of_three_trials())
    (file,) = folder.iterdir()
    return list(tf.compat.v1.train.summary_iterator(str(file)))


def tags_of(events):
    return [value.tag for event in events for value in event.summary.value]


@pytest.fixture(scope="module")
def prepared(tiny_rnnlm):
    return prepare(ProblemOptions(model=tiny_rnnlm, cluster="k80x2"), trace=False)


def test_tensorboard_reads_what_a_run_began_with_and_how_it_ended(prepared, tmp_path):
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    from tensorboard.plugins.hparams import metadata
    from tensorboard.plugins.hparams.api_pb2 import STATUS_SUCCESS

    finished(tmp_path / "run", prepared, {"model": "a.pb", "seed": 3, "share": 0.5, "is": True})
    events = accumulators.EventAccumulator(str(tmp_path / "run")).Reload()
    content = {
        tag: events.SummaryMetadata(tag).plugin_data.content
        for tag in (metadata.SESSION_START_INFO_TAG, metadata.SESSION_END_INFO_TAG)
    }
    start = metadata.parse_session_start_info_plugin_data(content[metadata.SESSION_START_INFO_TAG])
    assert {name: value.WhichOneof("kind") for name, value in start.hparams.items()} == {
        "model": "string_value", "seed": "number_value", "share": "number_value",
        "is": "bool_value",
    }  # fmt: skip
    assert (start.hparams["model"].string_value, start.hparams["seed"].number_value) == ("a.pb", 3)
    end = metadata.parse_session_end_info_plugin_data(content[metadata.SESSION_END_INFO_TAG])
    assert end.status == STATUS_SUCCESS
    assert end.end_time_secs >= start.start_time_secs > 0


def test_without_tensorboard_all_but_the_hyper_parameters_is_written(
    prepared, tmp_path, monkeypatch, caplog
):
    monkeypatch.setitem(sys.modules, "tensorboard.plugins.hparams", None)
    with caplog.at_level("WARNING", "tfplace"):
        events = finished(tmp_path / "run", prepared)
    (line,) = caplog.messages
    assert line == (
        "writing --logdir: hyper-parameters are left out, since TensorBoard is not installed; "
        "pip install tensorboard"
    )
    tags = tags_of(events)
    assert "result/step_seconds" in tags and not [tag for tag in tags if "_hparams_" in tag]
    assert [event.graph_def != b"" for event in events].count(True) == 1


def test_the_result_and_the_placed_graph_are_written_at_the_last_trial(prepared, tmp_path):
    events = finished(tmp_path / "run", prepared)
    (row,) = [event for event in events if "result/step_seconds" in tags_of([event])]
    report = report_of_three_trials()
    assert row.step == 3
    assert {
        value.tag: float(tf.make_ndarray(value.tensor)) for value in row.summary.value
    } == pytest.approx(
        {
            "result/step_seconds": report.best.step_seconds,
            "result/lower_bound_seconds": report.lower_bound_seconds,
            "result/gap": 1.0,
            "result/transfer_bytes": report.best.transfer_bytes,
            "result/measured_speedup": 1.5,
            "busy/device:CPU:0": report.best.busy_share["/device:CPU:0"],
            "busy/device:GPU:0": report.best.busy_share["/device:GPU:0"],
        }
    )
    (written,) = [event.graph_def for event in events if event.graph_def]
    graph = tf.compat.v1.GraphDef.FromString(written)
    names = prepared.problem.device_names
    assert [node.device for node in graph.node] == [
        names[prepared.given[op]] for op in prepared.built.op_of_node
    ]
    assert not any("value" in node.attr for node in graph.node)


def test_a_runs_folder_says_what_it_is():
    options = OptimizeOptions(
        ProblemOptions(model="nets/rnnlm.pb", cluster="workers:2"),
        algorithm="post",
        seed=7,
        logdir="logs",
    )
    date = time.strftime("%Y%m%d-%H%M%S", time.localtime(1e9))
    assert run_folder(options, 1e9) == f"logs/rnnlm-workers_2-post-seed7-{date}"
    options = dataclasses.replace(options, problem=ProblemOptions("m.pb", cluster="c/two.json"))
    assert run_folder(options, 1e9) == f"logs/m-two-post-seed7-{date}"
