"""A step placed for one set of input shapes after the other, all on the same variables."""

import contextlib
import dataclasses
import functools
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from graphs.cluster import Cluster
from graphs.clusters.discovery import find_cluster, logical_cluster
from graphs.errors import ShapesRefusedError, TfplaceError, UsageError, VerificationError
from graphs.host.scratch import scratch_directory
from graphs.loading.feeds import given_arrays
from graphs.protos import Structure, Tensor, TfFunction, TfVariable, Trackable
from rewrite.emit import EXTRA_DIRECTORY, emit
from rewrite.output_dir import atomic_directory
from rewrite.written_signature import whole_signature
from tfplace.algorithms.placers.legal import completed
from tfplace.api.example_call import Call, open_where_unlike
from tfplace.api.flags import OptimizeFlags, flag_values
from tfplace.api.flat_step import TRAIN, FlatStep, Shapes, shapes_of
from tfplace.api.load import load, make_whole
from tfplace.commands.from_flags import optimize_options
from tfplace.measurement.device_name import device_key
from tfplace.optimizing import optimize
from tfplace.preparing.options import OptimizeOptions
from tfplace.preparing.prepare import prepare
from tfplace.proving.proof import proven_structure
from tfplace.report.report import Report
from tfplace.simulation.simulated import simulated

_log = logging.getLogger("tfplace")
_REFUSED = "node split/assert"  # in TensorFlow's error; of a split model inside, a path precedes it
Openings = Sequence[Callable[[Call], Call]]
MANY_SHAPES = 8  # from here on it is worth saying how to have fewer


@dataclasses.dataclass(frozen=True)
class Placing:
    """A step placed for inputs of certain shapes.

    Attributes:
      flat: what was traced.
      loaded: the placed model, which holds what the signature needs.
      run: its signature, on the shared variables.
      whole: the signature of the unsplit step, on the same; None where it isn't split.
    """

    flat: FlatStep
    loaded: Trackable
    run: TfFunction
    whole: TfFunction = None


class Placings:
    """Places a function once by a search, and for other shapes by what was found.

    Attributes:
      report: of the search.
      first: what it was placed for.
      placed_of: {id of an original variable: (the original, the placed one)}.
    """

    def __init__(
        self, function: TfFunction, call: Call | None, flags: OptimizeFlags, openings: Openings = ()
    ) -> None:
        """Places it.

        Args:
          call: example arguments; None where its input signature says all.
          openings: what more than a call's shapes it is traced for, and what differs in a later
            call, as Keras does: the first of these that it can be traced for.
        """
        _require_own_devices(flags.get("cluster", "local"))
        self._function, self._flags = function, _on_logical_devices(flags)
        self._openings = openings
        self._all: list[Placing] = []
        self._last: Placing | None = None
        self.first = self._traced(call)
        self.placed_of: dict[int, tuple[TfVariable, TfVariable]] = {}
        self._of_shapes: dict[tuple[FlatStep, Shapes], Placing] = {}
        try:
            self._place_first(call)
        except ShapesRefusedError:  # what Keras traces for any length may only fit some
            if not self._openings:
                raise
            self._openings = ()
            self.first = self._traced(call)
            self._place_first(call)

    def _place_first(self, call: Call | None) -> None:
        """Places what was traced first by a search."""
        with scratch_directory() as folder:
            given, placed = os.path.join(folder, self.first.name), os.path.join(folder, "placed")
            self.first.save(given)
            with _options(given, self._chosen(self.first, placed), self._example(call)) as options:
                self.report: Report = optimize(options)
            plan = Path(placed, EXTRA_DIRECTORY, "placement.json").read_text(encoding="utf-8")
            self._plan: Mapping[str, str] = json.loads(plan)
            self._all.append(self._loaded(self.first, placed))

    def form_of(self, call: Call, casts: bool = False) -> FlatStep:
        """What was traced for a call with the same arguments, placed where there is none.

        An argument that is None at first and a tensor in the call, as Keras' sample_weight, or the
        other way round, makes another form.

        Raises:
          UsageError, VerificationError: as `of`.
        """
        for placing in self._all:
            if placing.flat.has_form(call):
                return placing.flat
        exact, names = self.first.in_another_form(call, casts)
        if not names:
            return self.first  # whose `fed` says what is wrong
        found = f"other arguments that are None than in the example: {', '.join(names)}"
        if "sample_weight" in names:
            found += " (of fit's sample_weight or class_weight)"
        example = self.first.arguments_of(exact)
        wanted = f"call it as in example_args, or place the step with example_args={example}"
        return self._again(exact, found, wanted).flat

    def of(self, form: FlatStep, call: Call, fed: list[Tensor]) -> Placing:
        """The placing for a call, made where there is none for its shapes.

        Args:
          form: as `form_of` has it.
          fed: its tensors, as `form.fed` has them.

        Raises:
          UsageError: the step can't be placed for these shapes, or not within a tf.function.
          VerificationError: placed for them, more than devices differs: a defect.
        """
        shapes = shapes_of(fed)
        if (form, shapes) not in self._of_shapes:
            exact = form.with_fed(call, fed)
            alike = (placing for placing in self._all if placing.flat.has_form(exact))
            fitting = next((each for each in alike if each.flat.accepts(shapes)), None)
            known = _text(form.shapes)
            found = f"inputs of shapes {_text(shapes)}, where it was placed for {known}"
            wanted = "call it with inputs of the shapes of example_args"
            self._of_shapes[form, shapes] = fitting or self._again(exact, found, wanted)
        return self._of_shapes[form, shapes]

    def run(self, form: FlatStep, call: Call, fed: list[Tensor]) -> Structure:
        """What the step returns, of inputs that its split refuses by the unsplit one.

        Raises:
          UsageError, VerificationError: as `of`.
        """
        placing = self.of(form, call, fed)
        if placing is not self._last:  # each has the weights in pieces of its own
            self.make_whole()
            self._last = placing
        inputs = {f"input_{number}": tensor for number, tensor in enumerate(fed)}
        try:
            return placing.flat.packed(placing.run(**inputs))
        except tf.errors.InvalidArgumentError as error:
            if placing.whole is None or _REFUSED not in str(error):
                raise
        # What is refused has changed nothing (rewrite/split/any_batch/input_assertions.py).
        whole = dataclasses.replace(placing, run=placing.whole, whole=None)
        self._of_shapes[form, shapes_of(fed)] = whole
        return whole.flat.packed(whole.run(**inputs))

    def make_whole(self) -> None:
        """Puts weights together that the placing which ran last has in pieces; not in a trace."""
        if self._last is not None and tf.executing_eagerly():
            make_whole(self._last.loaded, [self._last.run])

    def _again(self, call: Call, found: str, wanted: str) -> Placing:
        """Places it for another call, too."""
        if not tf.executing_eagerly():
            raise UsageError(
                f"calling a placed step within a tf.function: found {found}; wanted shapes that "
                "are known and that it was placed for: give batch_sizes, or an input_signature "
                f"with None for what varies, when it is placed, or call it outside; or {wanted}"
            )
        _log.info("%s: placing it again for %s", self.first.name, found)
        try:
            flat = self._traced(call)
            with scratch_directory() as folder:
                placing = self._loaded(flat, self._place_like_first(flat, call, folder))
        except VerificationError:
            raise
        except (TfplaceError, AttributeError, ValueError, TypeError) as error:
            said = str(error).strip().splitlines() or [type(error).__name__]
            reason = said[-1].strip() if said[0] == "in user code:" else said[0]  # AutoGraph's
            raise UsageError(
                f"calling a placed step: found {found}, and it can't be placed for them, too: "
                f"{reason}; {wanted}"
            ) from error
        self._all.append(placing)
        if len(self._all) == MANY_SHAPES:
            _log.warning(
                "%s was placed for %d shapes of its inputs, seconds for each; an input_signature "
                "with None for what varies places it once for all",
                self.first.name,
                MANY_SHAPES,
            )
        return placing

    def _traced(self, call: Call | None) -> FlatStep:
        """The step for a call, open where it may be."""
        if call is None:
            return FlatStep(self._function, call)
        known = next((each.flat for each in reversed(self._all) if each.flat.has_form(call)), None)
        opened = [each(call) for each in self._openings]
        if known is not None and known.specs is not None:
            opened = [open_where_unlike(known.specs, call)]
        for specs in opened:
            raised: list[Exception] = []
            attempt = tf.function(_attempt(self._function.python_function, raised))
            flat = FlatStep(attempt, call, specs)
            if not raised:
                return flat
            said = str(raised[0]).strip().splitlines() or [type(raised[0]).__name__]
            _log.info("%s: not traced for more shapes than the example's: %s", flat.name, said[-1])
        self._openings = ()
        return FlatStep(self._function, call)

    def _place_like_first(self, flat: FlatStep, call: Call, folder: str) -> str:
        """Places a step as the first one; returns where.

        In as many shards, whatever --shards=auto would choose now; whole where it can't be split
        so, as for a batch of fewer entries.
        """
        given = os.path.join(folder, flat.name)
        flat.save(given)
        split = self.report.split
        for shards in (*([] if split is None else [int(split["shards"])]), 1):
            placed = os.path.join(folder, f"placed_{shards}")
            chosen = self._chosen(flat, placed)
            chosen["shards"] = shards
            if shards > 1 and split is not None and split["weights"]:
                chosen["cut"] = "weights"
            if shards == 1:
                chosen.pop("cut", None)
                chosen["batch_axis"] = []
            try:
                with _options(given, chosen, flat.arrays(flat.fed(call))) as options:
                    place_like(options, self._plan)
                break
            except UsageError as error:
                if shards == 1:
                    raise
                _log.info("%s: whole, since %s", flat.name, error)
        return placed

    def _chosen(self, flat: FlatStep, output_dir: str) -> OptimizeFlags:
        return {
            **self._flags,
            "output_dir": output_dir,
            "signature": flat.signature,
            "mode": "train" if flat.signature == TRAIN else "inference",
        }

    def _example(self, call: Call | None) -> Mapping[str, np.ndarray]:
        """{input: array} that a placing's own runs are fed: the user's file, else the example."""
        feed, size = self._flags.get("feed"), self._flags.get("batch_size")
        if feed is not None:
            names = self.first.inputs_named
            arrays = given_arrays(feed).items()
            return {names.get(name, name): np.asarray(each) for name, each in arrays}
        if call is None or self._flags.get("input_shape"):
            return {}
        return self.first.arrays(self.first.fed(call.of_size(size) if size else call))

    def _loaded(self, flat: FlatStep, placed: str) -> Placing:
        """Loads what was placed, on the variables that there are; new ones are its own."""
        loaded = load(placed)
        shared = {}
        for original, variable in zip(flat.variables, loaded.placed_variables, strict=True):
            known = self.placed_of.setdefault(id(original), (original, variable))
            shared[id(variable.handle)] = known[1].handle
            shared[id(variable)] = known[1]
            if known[1] is not variable:  # one copy of the values is enough
                empty = tf.zeros([0], variable.dtype)
                tf.raw_ops.AssignVariableOp(resource=variable.handle, value=empty)
        for original, resource in zip(flat.resources, loaded.placed_resources, strict=True):
            shared[id(resource.resource_handle)] = original.resource_handle
        names = (flat.signature, whole_signature(flat.signature, ()))
        run, whole = (loaded.signatures.get(name) for name in names)
        for each in filter(None, (run, whole)):
            captured, variables = each.captured_inputs, each.graph.variables
            each.set_external_captures([shared.get(id(one), one) for one in captured])
            each.graph.variables = [shared.get(id(one), one) for one in variables]  # tapes'
        return Placing(flat, loaded, run, whole)


@contextlib.contextmanager
def _options(
    model: str, chosen: OptimizeFlags, fed: Mapping[str, Tensor]
) -> Iterator[OptimizeOptions]:
    """What flags say, and what is fed; nothing is made up where there is an example."""
    with flag_values("optimize", [model], chosen) as values:
        options = optimize_options(model, values)
        problem = dataclasses.replace(options.problem, fed=fed or None)
        yield dataclasses.replace(options, problem=problem)


def _attempt(
    function: Callable[..., Structure], raised: list[Exception]
) -> Callable[..., Structure]:
    """The function, whose errors are kept, as variables that it has made are initialized then."""

    @functools.wraps(function)
    def attempt(*args: Structure, **keywords: Structure) -> Structure:
        try:
            return function(*args, **keywords)
        except Exception as error:  # whatever a model's Python raises
            raised.append(error)
            return None

    return attempt


def _on_logical_devices(flags: OptimizeFlags) -> OptimizeFlags:
    """Flags whose local cluster has this process's logical devices, where it has made some."""
    cluster = logical_cluster() if flags.get("cluster", "local") == "local" else None
    return flags if cluster is None else {**flags, "cluster": cluster}


def _require_own_devices(cluster: str | Cluster) -> None:
    """Tasks that this process isn't connected to can't be those of its own step.

    Raises:
      UsageError: the cluster has such.
    """
    devices = (find_cluster(cluster) if isinstance(cluster, str) else cluster).device_names
    tasks = [name for name in devices if device_key(name).job]
    seen = {device_key(device.name) for device in tf.config.list_logical_devices()} if tasks else ()
    missing = [name for name in tasks if device_key(name) not in seen]
    if missing:
        named = repr(cluster) if isinstance(cluster, str) else "CLUSTER"
        raise UsageError(
            f"placing a step: its cluster has {missing[0]}, and this process is not connected to "
            "that task; wanted devices of this process, or three lines, the last one in a program "
            "of its own (start_workers: for workers:N; else see tfplace/docs/multiple_hosts.md):\n"
            '  tf.saved_model.save(MODULE, "step", signatures={"train_step": STEP})\n'
            f'  tfplace.optimize("step", cluster={named}, output_dir="placed")\n'
            '  step = tfplace.load("placed", start_workers=True).signatures["train_step"]'
        )


def _text(shapes: Shapes) -> str:
    return ", ".join("unknown" if shape is None else str(tuple(shape)) for shape in shapes)


def place_like(options: OptimizeOptions, plan: Mapping[str, str]) -> None:
    """Writes a model with the devices that its ops have in a plan.

    Args:
      options: the model, the cluster, the output; nothing is searched, timed or run, but it is
        proven by structure that only devices differ.
      plan: {op: device}, a placement.json; an op that it doesn't name goes to its neighbours.

    Raises:
      VerificationError: more than devices differs.
      TfplaceError: the model can't be read or written.
    """
    prepared = prepare(options.problem, trace=False)
    number = {name: d for d, name in enumerate(prepared.problem.device_names)}
    names = prepared.problem.graph.op_names
    wanted = np.array([number.get(plan.get(name, ""), -1) for name in names], np.int32)
    device_of_op = completed(prepared.problem, wanted, to_users=True)
    outcome = simulated(prepared.problem, device_of_op)
    if not outcome.is_feasible:
        _log.warning("placing the step for other shapes as before: %s", outcome.reason)
    devices = prepared.devices_to_write(device_of_op, options.problem.keep_devices)
    with atomic_directory(options.output_dir or "", overwrite=False) as made:
        emit(prepared.source, devices, made, {})
        proven_structure(prepared.source, made)
