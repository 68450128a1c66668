"""Child process of `verify`: runs given and emitted models and compares what they compute."""

import contextlib
import dataclasses
import functools
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from graphs.host.own_network import from_this_host_only
from graphs.host.parent import Parent
from graphs.names import with_index
from graphs.protos import FunctionDef, Session, Structure, Tensor, TfFunction
from graphs.run_session import checkpoint_keys, initialize, read_variables, write_variables
from rewrite.agreement import OutputAgreement, grown, most_apart
from rewrite.verify_messages import (
    LOAD,
    LOAD_ON_DEVICES,
    SESSION,
    BareGraph,
    Check,
    CheckOutcome,
    ChecksSoFar,
    ComparedValue,
    ModelRun,
    OutcomeKind,
    SavedModel,
    VerifyRequest,
)

v1 = tf.compat.v1
_MESSAGE_LENGTH = 300
# Of two differences between random runs the larger one is hardly ever so many times the other.
_SAME_DRAW = 100.0
# TensorFlow puts a traceback of the model's own code before what happened.
_NOT_THE_CAUSE = ("Graph execution error", "Detected at node", "File ", "Traceback", "Node:", "==")
_NUM_NUDGED = 2
_NUM_DRAWN = 5
Values = dict[str, np.ndarray]
Nudge = Callable[[np.ndarray], np.ndarray]


def _as_it_is(value: np.ndarray) -> np.ndarray:
    return value


def main(parent: Parent) -> None:
    """Takes a VerifyRequest; sends ChecksSoFar before each run and at the end."""
    request: VerifyRequest = parent.request
    if not request.tasks.addresses:
        # As many CPU devices as the placement names, so that its strings mean something.
        devices = [tf.config.LogicalDeviceConfiguration() for _ in range(request.num_cpus)]
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, devices)
    elif any(_is_called(check.placed) for check in request.checks):
        with from_this_host_only():
            tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec(request.tasks.addresses))
        # Grappler takes most of a large step's start, and on workers real runs have run the
        # optimised step before.
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    tf.config.set_soft_device_placement(True)
    runner = _Runner(request)
    outcomes: list[CheckOutcome] = []

    def tell(runs_placed: bool = False) -> None:
        parent.tell(ChecksSoFar(outcomes, runs_placed))

    end, longest = time.monotonic() + request.budget_seconds, 0.0
    for check in request.checks:
        began = time.monotonic()
        if outcomes and began + longest > end:  # another like the longest would not end in time
            why = f"the {request.budget_seconds:.1f} s for comparing were used up"
            outcomes.append(CheckOutcome(check.label, "left_out", why))
            continue
        outcomes.append(_outcome(runner, check, tell))
        longest = max(longest, time.monotonic() - began)
    tell()


def _outcome(runner: "_Runner", check: Check, tell: Callable[[bool], None]) -> CheckOutcome:
    """Makes one check.

    Where the emitted model disagrees with the original, the original runs again: to see whether
    it agrees with itself, and how far rounding errors alone lead it. What these change as much
    after several steps is compared after the first one.
    """
    runs_placed = False
    runner.keep_only(check)
    try:
        tell(runs_placed)
        first = runner.remembered(check.given, 0)
        runs_placed = True
        tell(runs_placed)
        placed = runner.run(check.placed)
        agreement = OutputAgreement.of(first.values(), runner.narrowest)
        agrees = all(agreement.within(value, placed[name]) for name, value in first.items())
        runs_placed = False
        tell(runs_placed)
        second = first if agrees else runner.remembered(check.given, 1)
        nudges = [] if agrees else _nudges(agreement)
        nudged = [runner.run(check.given, nudge=nudge) for nudge in nudges]
        values = settled(
            compared(first, second, placed, agreement, nudged),
            lambda: compared(
                first, runner.run(check.given), runner.run(check.placed), agreement, nudged
            ),
        )
        if check.given.num_steps > 1 and any(value.is_grown for value in values):
            values += _after_one_step(runner, check)
    except Exception as error:  # whatever a user's model raises
        if runs_placed:
            return CheckOutcome(check.label, "placed_failed", _message(error))
        is_damaged = isinstance(error, tf.errors.DataLossError)
        kind: OutcomeKind = "damaged" if is_damaged else "given_failed"
        if not is_damaged and check.unsplit is not None and _runs(runner, check.unsplit):
            kind = "split_failed"
        return CheckOutcome(check.label, kind, _message(error))
    return CheckOutcome(check.label, "compared", values=values)


def _nudges(agreement: OutputAgreement) -> list[Nudge]:
    return [functools.partial(agreement.nudged, seed=seed) for seed in range(_NUM_NUDGED)]


def _after_one_step(runner: "_Runner", check: Check) -> list[ComparedValue]:
    """What both models have in their variables then."""
    runs = [check.given, check.given, check.placed]
    first, second, placed = (runner.run(each, num_steps=1) for each in runs)
    agreement = OutputAgreement.of(first.values(), runner.narrowest)
    nudged = [runner.run(check.given, 1, nudge) for nudge in _nudges(agreement)]
    values = settled(
        compared(first, second, placed, agreement, nudged),
        lambda: compared(
            first, runner.run(check.given, 1), runner.run(check.placed, 1), agreement, nudged
        ),
    )
    return [
        dataclasses.replace(value, name=f"{value.name} after one step")
        for value in values
        if value.name.startswith("variable ")
    ]


def settled(
    values: list[ComparedValue], again: Callable[[], list[ComparedValue]]
) -> list[ComparedValue]:
    """What differs of a step that draws is compared with other draws: a defect differs each time.

    Adam's first step moves a weight by its rate, whatever its gradient; a draw that changes the
    sign of one is seen in few runs.
    """
    for _ in range(_NUM_DRAWN):
        differs = [not (each.is_equal or each.is_random or each.is_grown) for each in values]
        if not any(differs) or not any(each.is_random for each in values):
            break
        triples = zip(differs, values, again(), strict=True)
        values = [new if is_it else old for is_it, old, new in triples]
    return values


def _runs(runner: "_Runner", run: ModelRun) -> bool:
    try:
        runner.run(run)
    except Exception:  # whatever a user's model raises
        return False
    return True


def _message(error: Exception) -> str:
    """Says what happened, in the two lines of TensorFlow's that do."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith(_NOT_THE_CAUSE)]
    return (" ".join(said[:2]) or type(error).__name__)[:_MESSAGE_LENGTH]


def compared(
    first: Values,
    second: Values,
    placed: Values,
    agreement: OutputAgreement,
    nudged: Sequence[Values] = (),
) -> list[ComparedValue]:
    """Compares two runs of the original with one of the emitted model, value by value.

    Where anything the original computes is random, so may be what two of its runs happen to agree
    on: a variable that dropout moves by less than the tolerance. It is as long as the emitted
    model's is not altogether another one.
    """
    draws = any(not agreement.within(value, second[name]) for name, value in first.items())

    def is_random(name: str, value: np.ndarray) -> bool:
        own, other = (most_apart(value, run[name]) for run in (second, placed))
        return not agreement.within(value, second[name]) or (
            draws and not agreement.within(value, placed[name]) and other <= _SAME_DRAW * own
        )

    return [
        ComparedValue(
            name,
            max_abs_diff=most_apart(value, placed[name]),
            is_equal=agreement.within(value, placed[name]),
            is_random=is_random(name, value),
            is_grown=bool(nudged)
            and not agreement.within(value, placed[name])
            and grown(value, [each[name] for each in nudged], placed[name]),
        )
        for name, value in first.items()
    ]


class _Runner:
    """Runs models, and remembers what those gave that may be asked for again."""

    def __init__(self, request: VerifyRequest):
        self.narrowest = request.narrowest
        self._tasks = request.tasks
        self._num_cpus = request.num_cpus
        self._values: dict[ModelRun, list[Values]] = {}
        self._loaded: dict[SavedModel, _Loaded] = {}

    def keep_only(self, check: Check) -> None:
        """Forgets the models that a check doesn't run."""
        models = [run.model for run in (check.given, check.placed)]
        needed = {_file_of(model) for model in models if isinstance(model, SavedModel)}
        self._loaded = {key: each for key, each in self._loaded.items() if key in needed}

    def _load(self, model: SavedModel) -> "_Loaded":
        """The model as it is at first: kept, where a run changes nothing but variables."""
        if not model.has_only_variables:
            return _Loaded(model)
        key = _file_of(model)
        if key not in self._loaded:
            self._loaded[key] = _Loaded(model)
        return self._loaded[key]

    def remembered(self, run: ModelRun, index: int) -> Values:
        """What the run gives the first time (index 0) or the second (1)."""
        known = self._values.setdefault(run, [])
        while len(known) <= index:
            known.append(self.run(run))
        return known[index]

    def run(self, run: ModelRun, num_steps: int = 0, nudge: Nudge = _as_it_is) -> Values:
        """What a run gives.

        Args:
          num_steps: of fewer steps than it has; 0 for all.
          nudge: changes what is fed, and the variables' first values.
        """
        num_steps = num_steps or run.num_steps
        if isinstance(run.model, SavedModel) and _is_called(run):
            with tf.device(self._tasks.first_device if run.model.way == LOAD else None):
                loaded = self._load(run.model)
                function = loaded.begun(run.model.signature, nudge)
                return _run_signature(function, run, num_steps, nudge)
        values: Values = {}
        with self._session(run.model) as session:
            graph = session.graph
            feeds = {}
            for name, array in run.feeds.items():
                tensor = graph.get_tensor_by_name(with_index(name))
                feeds[tensor] = nudge(array.astype(tensor.dtype.as_numpy_dtype))
            fetches = {label: with_index(name) for label, name in run.fetches.items()}
            ops = [graph.get_operation_by_name(name) for name in run.ops]
            if nudge is not _as_it_is:
                before = read_variables(session, (v.op for v in run.variables))
                write_variables(session, {op: nudge(value) for op, value in before.items()})
            for step in range(num_steps):
                fetched, _ = session.run((fetches, ops), feeds)
                values.update({_label(name, step, run): v for name, v in fetched.items()})
            after = read_variables(session, (v.op for v in run.variables))
            values.update({f"variable {v.name}": after[v.op] for v in run.variables})
        return values

    @contextlib.contextmanager
    def _session(self, model: SavedModel | BareGraph) -> Iterator[Session]:
        """A session with the model loaded and its variables initialised."""
        config = v1.ConfigProto(
            allow_soft_placement=True,
            isolate_session_state=True,
            device_count={} if self._tasks.target else {"CPU": self._num_cpus},
        )
        with tf.Graph().as_default(), v1.Session(self._tasks.target, config=config) as session:
            if isinstance(model, BareGraph):
                _open_graph(session, model)
            else:
                meta_graph = v1.saved_model.load(session, model.tags, model.directory)
                _require_signature(meta_graph.signature_def, model.signature)
            yield session


def _file_of(model: SavedModel) -> SavedModel:
    """What is loaded of a model, whichever signature is called."""
    return dataclasses.replace(model, signature="")


def _is_called(run: ModelRun) -> bool:
    return isinstance(run.model, SavedModel) and run.model.way != SESSION


class _Loaded:
    """A model as tf.saved_model.load reads it, whose variables can begin anew."""

    def __init__(self, model: SavedModel):
        policy = "save_variable_devices" if model.way == LOAD_ON_DEVICES else None
        options = tf.saved_model.LoadOptions(experimental_variable_policy=policy)
        self._model = tf.saved_model.load(model.directory, tags=model.tags, options=options)
        self._first: dict[int, Tensor] = {}  # no copies: what is written goes elsewhere meanwhile

    def begun(self, signature: str, nudge: Nudge) -> TfFunction:
        """A signature, whose variables hold again what they were loaded with, nudged."""
        _require_signature(self._model.signatures, signature)
        function = self._model.signatures[signature]
        for variable in function.variables:
            known = self._first.get(id(variable))
            first = self._first.setdefault(id(variable), variable.read_value())
            is_number = variable.dtype.is_floating or variable.dtype.is_complex
            if nudge is not _as_it_is and is_number:
                variable.assign(nudge(first.numpy()))
            elif known is not None:
                variable.assign(first)
        return function


def _run_signature(function: FunctionDef, run: ModelRun, num_steps: int, nudge: Nudge) -> Values:
    wanted = function.structured_input_signature[1]
    feeds = {
        name: tf.constant(nudge(array.astype(wanted[name].dtype.as_numpy_dtype)))
        for name, array in run.feeds.items()
    }
    values: Values = {}
    for step in range(num_steps):
        outputs = function(**feeds)
        for label, key in run.fetches.items():
            values[_label(label, step, run)] = _component(outputs, key).numpy()
    seen: Counter[str] = Counter()
    for variable in function.variables if run.num_steps > 1 else ():
        name = variable.name.removesuffix(":0")
        seen[name] += 1  # several may be called "kernel"; both models have them in one order
        values[f"variable {name}" + f" {seen[name]}" * (seen[name] > 1)] = variable.numpy()
    return values


def _component(outputs: Mapping[str, Structure], key: str) -> Tensor:
    """Finds an output, or the part of a sparse or ragged one that "name/part" means."""
    if key in outputs:
        return outputs[key]
    name, _, part = key.rpartition("/")
    value = outputs[name]
    if isinstance(value, tf.SparseTensor):
        return {"indices": value.indices, "values": value.values, "shape": value.dense_shape}[part]
    return tf.nest.flatten(value, expand_composites=True)[int(part)]


def _require_signature(signatures: Collection[str], name: str) -> None:
    """Raises ValueError for a missing signature: in a session, only its tensors are run."""
    if name and name not in signatures:
        there = ", ".join(sorted(signatures)) or "none"
        raise ValueError(f"it has no signature {name!r}, but {there}")


def _label(name: str, step: int, run: ModelRun) -> str:
    return f"{name} of step {step + 1}" if run.num_steps > 1 else name


def _open_graph(session: Session, model: BareGraph) -> None:
    """Imports a bare graph and gives its variables the values of a checkpoint or its own."""
    v1.import_graph_def(graph_pb2.GraphDef.FromString(model.graph_def), name="")
    initialize(session, model.initialization, model.variables)
    if model.checkpoint and model.variables:
        checkpoint = tf.train.load_checkpoint(model.checkpoint)
        keys = checkpoint_keys(model.variables)
        write_variables(session, {op: checkpoint.get_tensor(key) for op, key in keys.items()})
