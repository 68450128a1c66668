"""Child process: runs given and emitted models and compares what they compute.

Run by rewrite.verify as `python -m rewrite.verify_child REQUEST RESULT`. After each check the
result file is written anew, so that a crash loses one check only.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from graphs.names import with_index
from graphs.source_model import Initialization, Variable
from rewrite.agreement import OutputAgreement, max_abs_diff
from rewrite.child_process import write_result
from rewrite.run_session import checkpoint_keys, initialize, read_variables, write_variables

v1 = tf.compat.v1
_MESSAGE_LENGTH = 300
# TensorFlow puts a traceback of the model's own code before what happened.
_NOT_THE_CAUSE = ("Graph execution error", "Detected at node", "File ", "Traceback", "Node:", "==")
Json = Mapping[str, Any]
Values = dict[str, np.ndarray]


def main(argv: Sequence[str]) -> None:
    """Reads the request and writes {"outcomes": [...], "running": which model}."""
    request = json.loads(Path(argv[1]).read_text())
    if not request["target"]:
        _split_cpu(request["num_cpus"])
    tf.config.set_soft_device_placement(True)
    runs = _ComparedRuns(request)
    outcomes: list[dict[str, Any]] = []
    clock = _Deadline(request["budget_seconds"])
    for check in request["checks"]:
        outcome: dict[str, Any] = {"label": check["label"], "values": []}
        if outcomes and clock.is_over():
            why = f"the {request['budget_seconds']:g} s for comparing were used up"
            outcomes.append({**outcome, "left_out": why})
            continue
        with clock:
            result = _outcome(runs, check, request["rtol"], lambda running: write_result(
                argv[2], {"outcomes": outcomes, "running": running}))  # fmt: skip
        outcomes.append({**outcome, **result})
    write_result(argv[2], {"outcomes": outcomes})


class _Deadline:
    """Says when another check like the longest so far would not end in time."""

    def __init__(self, budget_seconds: float):
        self._budget = budget_seconds
        self._spent = 0.0
        self._longest = 0.0
        self._began = 0.0

    def is_over(self) -> bool:
        return self._spent + self._longest > self._budget

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *error: object) -> None:
        seconds = time.monotonic() - self._began
        self._spent += seconds
        self._longest = max(self._longest, seconds)


def _outcome(
    runs: _ComparedRuns, check: Json, rtol: float, tell: Callable[[str], None]
) -> dict[str, Any]:
    """One check; `tell` is told which model is run, in case that it takes the process with it.

    The original runs a second time only where the emitted model disagrees with it: to see
    whether it agrees with itself.
    """
    tell("given")
    try:
        first = runs.given(check["given"])
    except tf.errors.DataLossError as error:
        return {"damaged": _message(error)}
    except Exception as error:  # whatever a user's model raises
        return {"not_run": _message(error)}
    tell("placed")
    try:
        placed = runs.once(check["placed"])
        agreement = OutputAgreement.of(first.values(), rtol, runs.narrowest)
        agrees = all(agreement.within(value, placed[name]) for name, value in first.items())
    except Exception as error:  # whatever a user's model raises
        return {"failed": _message(error)}
    tell("given")
    try:
        second = first if agrees else runs.given_again(check["given"])
    except Exception as error:  # whatever a user's model raises
        return {"not_run": _message(error)}
    return {"values": compared(first, second, placed, agreement)}


def _split_cpu(count: int) -> None:
    """Makes as many CPU devices as the placement names, so that its strings mean something."""
    devices = [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)


def _message(error: Exception) -> str:
    """The two lines that say what happened."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith(_NOT_THE_CAUSE)]
    return (" ".join(said[:2]) or type(error).__name__)[:_MESSAGE_LENGTH]


def compared(
    first: Values, second: Values, placed: Values, agreement: OutputAgreement
) -> list[dict[str, Any]]:
    """Compares two runs of the original with one of the emitted model, value by value.

    Returns:
      [{"name", "why" it isn't compared or "", "equal", "max_abs_diff"}].
    """
    results = []
    for name, value in first.items():
        why = ""
        if not agreement.within(value, second[name]):
            why = "it differs between two runs of the model as it came"
        difference = max_abs_diff(value, placed[name])
        equal = agreement.within(value, placed[name])
        results.append({"name": name, "why": why, "equal": equal, "max_abs_diff": difference})
    return results


class _ComparedRuns:
    """Runs of models, each kept so that a model is run no more often than needed."""

    def __init__(self, request: Json):
        self.target = str(request["target"])
        self.arrays = dict(np.load(request["arrays"], allow_pickle=True))
        self.num_cpus = int(request["num_cpus"])
        self.narrowest = str(request["narrowest"])
        self._known: dict[str, list[Values]] = {}

    def given(self, runner: Json) -> Values:
        """What a run of the original gives, the first time."""
        return self._nth(runner, 0)

    def given_again(self, runner: Json) -> Values:
        """What it gives the second time."""
        return self._nth(runner, 1)

    def _nth(self, runner: Json, count: int) -> Values:
        known = self._known.setdefault(json.dumps(runner, sort_keys=True), [])
        while len(known) <= count:
            known.append(self.once(runner))
        return known[count]

    def once(self, runner: Json) -> Values:
        return self._load_run(runner) if runner["how"] == "load" else self._session_run(runner)

    def _session_run(self, runner: Json) -> Values:
        variables = [Variable(**v) for v in runner.get("variables", ())]
        values: Values = {}
        with self._session(runner) as session:
            graph = session.graph
            feeds = {}
            for name, array in runner["feeds"].items():
                tensor = graph.get_tensor_by_name(with_index(name))
                feeds[tensor] = self.arrays[array].astype(tensor.dtype.as_numpy_dtype)
            fetches = {label: with_index(name) for label, name in runner["fetches"].items()}
            ops = [graph.get_operation_by_name(name) for name in runner.get("ops", ())]
            for step in range(runner["num_steps"]):
                fetched, _ = session.run((fetches, ops), feeds)
                values.update({_label(name, step, runner): v for name, v in fetched.items()})
            after = read_variables(session, variables)
            values.update({f"variable {v.name}": after[v.op] for v in variables})
        return values

    @contextlib.contextmanager
    def _session(self, runner: Json) -> Iterator[Any]:
        """A session with the model loaded and its variables initialised."""
        config = v1.ConfigProto(
            allow_soft_placement=True,
            isolate_session_state=True,
            device_count={} if self.target else {"CPU": self.num_cpus},
        )
        with tf.Graph().as_default(), v1.Session(self.target, config=config) as session:
            if "saved_model" in runner:
                loaded = v1.saved_model.load(session, runner["tags"], runner["saved_model"])
                _require_signature(loaded, runner.get("signature", ""))
            else:
                _open_graph(session, runner)
            yield session

    def _load_run(self, runner: Json) -> Values:
        policy = "save_variable_devices" if runner["variable_devices"] else None
        options = tf.saved_model.LoadOptions(experimental_variable_policy=policy)
        loaded = tf.saved_model.load(runner["saved_model"], tags=runner["tags"], options=options)
        function = loaded.signatures[runner["signature"]]
        wanted = function.structured_input_signature[1]
        feeds = {
            name: tf.constant(self.arrays[array].astype(wanted[name].dtype.as_numpy_dtype))
            for name, array in runner["feeds"].items()
        }
        values: Values = {}
        for step in range(runner["num_steps"]):
            outputs = function(**feeds)
            for label, key in runner["fetches"].items():
                values[_label(label, step, runner)] = _component(outputs, key).numpy()
        return values


def _component(outputs: Mapping[str, Any], key: str) -> Any:
    """An output, or the part of a sparse or ragged one that "name/part" means."""
    if key in outputs:
        return outputs[key]
    name, _, part = key.rpartition("/")
    value = outputs[name]
    if isinstance(value, tf.SparseTensor):
        parts = {"indices": value.indices, "values": value.values, "shape": value.dense_shape}
        return parts[part]
    return tf.nest.flatten(value, expand_composites=True)[int(part)]


def _require_signature(meta_graph: Any, name: str) -> None:
    """A signature is run by its tensors, so that it is still there has to be looked up."""
    if name and name not in meta_graph.signature_def:
        there = ", ".join(sorted(meta_graph.signature_def)) or "none"
        raise ValueError(f"it has no signature {name!r}, but {there}")


def _label(name: str, step: int, runner: Json) -> str:
    return f"{name} of step {step + 1}" if runner["num_steps"] > 1 else name


def _open_graph(session: Any, runner: Json) -> None:
    """Imports a bare graph and gives its variables the values of a checkpoint or its own."""
    graph_def = graph_pb2.GraphDef.FromString(Path(runner["graph_def"]).read_bytes())
    v1.import_graph_def(graph_def, name="")
    variables = [Variable(**v) for v in runner["initialized"]]
    initialize(session, Initialization(**runner["initialization"]), variables)
    if runner["checkpoint"] and variables:
        checkpoint = tf.train.load_checkpoint(runner["checkpoint"])
        keys = checkpoint_keys(variables)
        values = {op: checkpoint.get_tensor(key) for op, key in keys.items()}
        write_variables(session, variables, values)


if __name__ == "__main__":
    main(sys.argv)
