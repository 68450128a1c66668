"""Writes what goes on in a search, and how it ended, as TensorFlow's event files.

A row is one summary with all its values. At most one row is written in EVERY_SECONDS, so that a
search that evaluates thousands of placements a second isn't slowed down.
"""

import contextlib
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType

import tensorflow as tf

from graphs.errors import OutputError
from graphs.op_graph import IntArray
from graphs.protos import Message
from tfplace.output_paths import default_output_dir
from tfplace.preparing.options import OptimizeOptions
from tfplace.preparing.prepare import PreparedModel
from tfplace.progress import Progress
from tfplace.report.report import Report
from tfplace.search.search import SearchMoment

EVERY_SECONDS = 0.25

_log = logging.getLogger("tfplace")
KEPT_ATTRIBUTES = ("dtype", "T", "_output_shapes", "shape", "_class")


def run_folder(options: OptimizeOptions, now: float) -> str:
    """LOGDIR/MODEL-CLUSTER-ALGORITHM-seedN-DATE, so that runs stay apart and say what they are.

    Args:
      options: with a logdir.
      now: seconds since 1970.
    """
    assert options.logdir is not None
    stem = os.path.basename(default_output_dir(options.problem.model)).removesuffix("_placed")
    cluster = os.path.basename(options.problem.cluster).removesuffix(".json").replace(":", "_")
    date = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    name = f"{stem}-{cluster}-{options.algorithm}-seed{options.seed}-{date}"
    return os.path.join(options.logdir, name)


class SearchLog(Progress):
    """Writes into an event file what another progress shows to a person.

    Attributes:
      folder: where the event file lies.
    """

    def __init__(
        self,
        folder: str,
        shown: Progress,
        hparams: Mapping[str, str | float | bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Opens the event file and writes what the run begins with.

        Args:
          folder: of one run; it is made.
          shown: the other progress; it is told everything, too.
          clock: seconds; for tests.

        Raises:
          OutputError: it can't be written, as on a full disk; so does all that writes to it.
        """
        self.folder = folder
        self._shown = shown
        self._clock = clock
        with self._told():
            self._writer = tf.summary.create_file_writer(folder)
        self._last_written = -math.inf
        self._written: SearchMoment | None = None
        self._latest: SearchMoment | None = None
        self._hparams_plugin = _hparams_plugin()
        if self._hparams_plugin is not None:
            self._write(self._hparams_plugin.session_start_pb(hparams), 0)

    def say(self, sentence: str) -> None:
        self._shown.say(sentence)

    def search(self, moment: SearchMoment) -> None:
        self._shown.search(moment)
        self._latest = moment
        if self._clock() - self._last_written >= EVERY_SECONDS:
            self._write_row()

    @contextlib.contextmanager
    def working(self, budget_seconds: float | None = None) -> Iterator[None]:
        with self._shown.working(budget_seconds):
            try:
                yield
            finally:
                if self._latest is not self._written:
                    self._write_row()

    def finish(self, prepared: PreparedModel, device_of_op: IntArray, report: Report) -> None:
        """Writes the result, the placed graph, and that the run ended well; closes the file."""
        result: dict[str, float | None] = {
            "result/step_seconds": report.best.step_seconds,
            "result/lower_bound_seconds": report.lower_bound_seconds,
            "result/gap": report.gap,
            "result/transfer_bytes": report.best.transfer_bytes,
        }
        if report.measured is not None and report.measured.baseline:
            result["result/measured_speedup"] = report.measured.speedup
        for device, share in report.best.busy_share.items():
            result[f"busy{device}"] = share
        trials = int(report.search["num_trials"])
        self._write(_scalars(result), trials)
        # The opened run, every node with the device of its op, named by its call path.
        nodes, device_names = prepared.flat.graph_def.node, prepared.problem.device_names
        graph = tf.compat.v1.GraphDef(versions=prepared.flat.graph_def.versions)
        for node, op in zip(nodes, prepared.built.op_of_node.tolist(), strict=True):
            kept = {key: node.attr[key] for key in KEPT_ATTRIBUTES if key in node.attr}
            placed = graph.node.add(name=node.name, op=node.op, input=node.input, attr=kept)
            placed.device = device_names[int(device_of_op[op])]
        with self._told(), self._writer.as_default():
            tf.summary.graph(graph)
        if self._hparams_plugin is not None:
            from tensorboard.plugins.hparams.api_pb2 import STATUS_SUCCESS

            self._write(self._hparams_plugin.session_end_pb(STATUS_SUCCESS), trials)
        with self._told():
            self._writer.close()

    def _write_row(self) -> None:
        moment = self._latest
        assert moment is not None
        self._write(_scalars(row_of(moment, self._written)), moment.num_trials)
        self._written, self._last_written = moment, self._clock()

    def _write(self, summary: Message, step: int) -> None:
        with self._told(), self._writer.as_default():
            tf.summary.experimental.write_raw_pb(summary.SerializeToString(), step)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Turns TensorFlow's error of a file into ours."""
        try:
            yield
        except tf.errors.OpError as error:
            why = error.message.strip().splitlines()[-1]
            raise OutputError(
                f"writing --logdir: TensorFlow can't write events to {self.folder} ({why}); make "
                "room there, or choose another place"
            ) from None


def _hparams_plugin() -> ModuleType | None:
    """TensorBoard's maker of summaries for its plugin; None where TensorBoard is not installed."""
    try:
        from tensorboard.plugins.hparams import summary
    except ImportError:
        _log.warning(
            "writing --logdir: hyper-parameters are left out, since TensorBoard is not installed; "
            "pip install tensorboard"
        )
        return None
    return summary


def row_of(moment: SearchMoment, before: SearchMoment | None) -> dict[str, float | None]:
    """{tag: value} of one moment; shares and rates are since the row before.

    Args:
      before: that of the last row; None at the first.
    """
    trials = moment.num_trials - (before.num_trials if before else 0)
    infeasible = moment.num_infeasible - (before.num_infeasible if before else 0)
    seconds = moment.seconds - (before.seconds if before else 0.0)
    return {
        "search/best_step_seconds": moment.best_step_seconds,
        "search/mean_step_seconds": moment.mean_step_seconds,
        "search/infeasible_share": infeasible / trials if trials else None,
        "search/trials_per_second": trials / seconds if seconds > 0 else None,
        **{f"policy/{name}": value for name, value in moment.scalars.items()},
    }


def _scalars(values: Mapping[str, float | None]) -> tf.compat.v1.Summary:
    """One summary of all values that are numbers, as tf.summary.scalar would write each."""
    summary = tf.compat.v1.Summary()
    for tag, number in values.items():
        if number is not None and math.isfinite(number):
            value = summary.value.add(tag=tag)
            value.metadata.plugin_data.plugin_name = "scalars"
            value.metadata.data_class = 1  # DATA_CLASS_SCALAR
            value.tensor.dtype = tf.float32.as_datatype_enum
            value.tensor.tensor_shape.SetInParent()
            value.tensor.float_val.append(number)
    return summary


def hparams_of(options: OptimizeOptions) -> dict[str, str | float | bool]:
    """What a run began with."""
    return {
        "model": options.problem.model,
        "cluster": options.problem.cluster,
        "algorithm": options.algorithm,
        "evaluator": options.evaluator,
        "seed": options.seed,
        "budget_seconds": options.budget_seconds,
        "max_trials": options.max_trials or 0,
        "memory_reserve": options.problem.memory_reserve,
    }
