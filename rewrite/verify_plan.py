"""Plans what is run to compare an emitted model with the model as it came, on which inputs."""

import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from graphs.building.op_outputs import signature_of
from graphs.errors import TfplaceError
from graphs.function_library import bodies, library_of
from graphs.graph_view import GraphView
from graphs.loading.feeds import generate_feeds
from graphs.loading.saved_model_file import SERVE_TAG, choose_meta_graph
from graphs.loading.sniff import sniff
from graphs.loading.variable_updates import assigns
from graphs.names import op_of, with_index
from graphs.protos import GraphDef
from graphs.source_model import Signature, SourceModel, TensorSpec, Variable
from rewrite.call_graph import names_other_tasks, without_devices
from rewrite.emit_forms import write_cleared
from rewrite.model_builder import given_graph
from rewrite.verify_messages import (
    LOAD,
    LOAD_ON_DEVICES,
    SESSION,
    BareGraph,
    Check,
    ModelRun,
    SavedModel,
)
from rewrite.written_signature import has_own, run_name, signature_key, whole_name, written_name

_GUESSED_SIZE = 2
_SEED = 0
_ON_VARIABLES = (
    *("VarHandleOp", "VarIsInitializedOp", "ReadVariableOp", "Assign", "DestroyResourceOp"),
    *("ResourceApply", "ResourceSparseApply", "ResourceGather", "ResourceScatter"),
    *("ResourceStridedSliceAssign", "StatefulPartitionedCall"),
    *("While", "If", "Case", "SaveV2", "RestoreV2", "MergeV2Checkpoints", "Assert", "Print"),
)
"""How stateful ops begin that only call, act on variables, or save and restore them."""
_RANKS = (0, 1, 2, 3, 4)
"""Tried one after the other, until TensorFlow can run it, for an input of unknown rank."""
Arrays = Mapping[str, np.ndarray]


class Plan:
    """Works out what to run.

    Attributes:
      graph_def: the model as it came.
      output_dir: the emitted model.
      left_out: "name: why" of what can't be compared, once `checks` has been read to its end.
    """

    def __init__(
        self,
        source: SourceModel,
        output_dir: str,
        scratch: Path,
        is_remote: bool,
        unsplit: SourceModel | None = None,
    ):
        """Prepares the model as it came; `unsplit` is it where `source` has a split step."""
        self._original = (
            None if unsplit is None else Plan(unsplit, output_dir, scratch / "unsplit", is_remote)
        )
        self.left_out: list[str] = []
        self._source = source
        self.output_dir = output_dir
        self._is_remote = is_remote
        self._is_loaded = bool(source.saved_model_dir) and source.kind != "saved_model_v1"
        meta_graph = source.meta_graph_def
        # A run graph with a step that was made has placeholders where its run is fed, which may
        # be in the middle of what another signature computes.
        self.graph_def = source.graph_def if meta_graph is None else meta_graph.graph_def
        self._view = GraphView(self.graph_def)
        is_saved_model = bool(source.saved_model_dir) and meta_graph is not None
        self._tags = tuple(meta_graph.meta_info_def.tags) if is_saved_model else (SERVE_TAG,)
        self._given_dir = source.saved_model_dir
        if self._given_dir and not is_remote and names_other_tasks(self.graph_def):
            # Its devices may be of a cluster that is gone; without any it computes the same.
            self._given_dir = str(scratch / "given_without_devices")
            write_cleared(Path(source.saved_model_dir), Path(self._given_dir))

    def checks(self, feeds: Arrays, placed_graph_def: GraphDef) -> Iterator[Check]:
        """All checks, the run's first.

        Of a split step's model the run itself is compared with the split step, whose sums have the
        same order; all other signatures are compared with the model as it came.
        """
        for check in self._checks(feeds, placed_graph_def):
            yield check if self._original is None else self._original.beside(check)

    def _checks(self, feeds: Arrays, placed_graph_def: GraphDef) -> Iterator[Check]:
        signatures = self._source.signatures
        made = {name: self._inputs(name, each, feeds) for name, each in signatures.items()}
        # What TensorFlow 2 saved is loaded: a v1 Session can't run all of it.
        first = [n for n in signatures if self._is_loaded and self._is_the_run(signatures[n])]
        for name in first:
            yield from self._loader_checks(name, signatures[name], made[name])
        if not first:
            yield from self._run_checks(feeds, placed_graph_def)
        for name, signature in signatures.items():
            inputs = made[name]
            if inputs is not None and not self._is_loaded:
                yield self._session_check(name, SESSION, signature, inputs)
            if name not in first:
                yield from self._loader_checks(name, signature, inputs)
        for name, signature in signatures.items():
            if self._original is None or self._that_gives(name)[0] is not self:
                yield from self._empty_batch_checks(name, signature)  # a split step refuses these

    def beside(self, check: Check) -> Check:
        """A check of a split step's run, and what shows whether this model's unsplit one runs."""
        model = check.given.model
        if not check.is_run or self._source.origins is not None:
            return check
        if isinstance(model, SavedModel) and model.way != SESSION:
            model = dataclasses.replace(model, directory=self._given_dir)
        else:
            model = self._given_model
        return dataclasses.replace(check, unsplit=dataclasses.replace(check.given, model=model))

    def _run_checks(self, feeds: Arrays, placed_graph_def: GraphDef) -> Iterator[Check]:
        source = self._source
        is_training = source.mode == "train"
        placed = ModelRun(
            SavedModel(self.output_dir, self._tags),
            feeds={with_index(tensor): np.asarray(value) for tensor, value in feeds.items()},
            fetches={fetch: fetch for fetch in source.fetches if ":" in fetch},
            ops=[fetch for fetch in source.fetches if ":" not in fetch],
            num_steps=2 if is_training else 1,
            variables=self._variables if is_training else (),
        )
        if not source.saved_model_dir:
            given = dataclasses.replace(placed, model=self._given_model)
            yield Check("the run", given, placed, is_run=True)
            yield from self._emitted_run_checks(given)
        elif source.origins is None and not self._is_loaded:
            given = dataclasses.replace(placed, model=self._given_model)
            yield Check("the run", given, placed, is_run=True)
        elif source.origins is None or placed_graph_def is not None:
            # No signature has it: the graphs themselves are run.
            changed_graph = placed_graph_def
            if source.origins is None:
                emitted = sniff(self.output_dir).proto
                changed_graph = choose_meta_graph(emitted, self._tags, self.output_dir).graph_def
            reached = GraphView(source.graph_def).ancestors(source.fetches)
            used = [variable for variable in placed.variables if variable.op in reached]
            given, changed = (
                dataclasses.replace(placed, model=self._bare_graph(graph), variables=used)
                for graph in (without_devices(source.graph_def), changed_graph)
            )
            made = ", with the training step that was made for it"
            yield Check("the run" + made * bool(source.origins), given, changed, is_run=True)
        else:
            why = "its training step was made for the search and is not in the emitted model"
            self.left_out.append(f"the run: {why}")

    def _emitted_run_checks(self, run: ModelRun) -> Iterator[Check]:
        """Compares the signature that a graph's run has where it is written with the run itself."""
        name = written_name(self._source)
        inputs, outputs = self._emitted_keys(name, run)
        if not outputs or self._is_remote:
            return
        given = dataclasses.replace(run, variables=())
        feeds = {key: run.feeds[tensor] for key, tensor in inputs.items()}
        for way in (LOAD, LOAD_ON_DEVICES):
            model = SavedModel(self.output_dir, self._tags, name, way)
            placed = ModelRun(model, feeds, outputs, num_steps=run.num_steps)
            yield Check(f"signature {name} ({way})", given, placed, is_run=True)

    def _emitted_keys(self, name: str, run: ModelRun) -> tuple[dict[str, str], dict[str, str]]:
        """{input of the run's signature: fed tensor}, and {fetched tensor: output}."""
        if not has_own(self._source):
            inputs = {signature_key(tensor): tensor for tensor in run.feeds}
            return inputs, {fetch: signature_key(fetch) for fetch in run.fetches}
        own = self._source.signatures[name]
        inputs = {key: with_index(spec.tensor) for key, spec in own.inputs.items()}
        return inputs, {with_index(spec.tensor): key for key, spec in own.outputs.items()}

    def _loader_checks(
        self, name: str, signature: Signature, inputs: Arrays | None, more: str = ""
    ) -> Iterator[Check]:
        """Calls a signature through tf.saved_model.load.

        On other tasks only with the variables on their devices, as the model is meant: else their
        values would cross the network in each step.
        """
        is_known = inputs is not None and bool(self._source.saved_model_dir)
        if not is_known or (self._is_remote and not self._is_loaded):
            return
        plan, its = self._that_gives(name)
        given = ModelRun(
            SavedModel(plan._given_dir, self._tags, its, LOAD, plan._has_only_variables),
            inputs or {},
            {key: key for key in signature.outputs},
            num_steps=self._num_steps(signature),
        )
        for way in (LOAD_ON_DEVICES,) if self._is_remote or more else (LOAD, LOAD_ON_DEVICES):
            model = SavedModel(self.output_dir, self._tags, name, way, self._has_only_variables)
            placed = dataclasses.replace(given, model=model)
            is_run = self._is_the_run(signature) and not more
            yield Check(f"signature {name} ({way}{more})", given, placed, is_run)

    def _session_check(self, name: str, how: str, signature: Signature, inputs: Arrays) -> Check:
        """Runs a signature by its tensors; twice, with its variables, if it changes some."""
        plan, its = self._that_gives(name)
        placed = ModelRun(
            SavedModel(self.output_dir, self._tags, name),
            *_ends(signature, inputs),
            num_steps=self._num_steps(signature),
            variables=self._variables if self._changes(signature) else (),
        )
        fed, fetched = _ends(plan._source.signatures[its], inputs)
        given = dataclasses.replace(placed, model=plan._given_model, feeds=fed, fetches=fetched)
        is_run = self._is_the_run(signature) and how == SESSION
        return Check(f"signature {name} ({how})", given, placed, is_run)

    def _that_gives(self, name: str) -> "tuple[Plan, str]":
        """The plan with the model, and the signature there, that a signature is compared with."""
        if self._original is None or name == run_name(self._original._source):
            return self, name
        given = self._original._source
        return self._original, run_name(given) if name == whole_name(given) else name

    def _changes(self, signature: Signature) -> bool:
        """Whether it assigns to variables."""
        return assigns(self._view, [spec.tensor for spec in signature.outputs.values()])

    def _num_steps(self, signature: Signature) -> int:
        return 2 if self._source.mode == "train" or self._changes(signature) else 1

    @functools.cached_property
    def _variables(self) -> Sequence[Variable]:
        """All variables whose values can be compared.

        Those that hold the path of an asset can't be: it lies in another folder.
        """
        paths = {op_of(tensor) for tensor in self._source.initialization.asset_feeds}
        holders = {
            op_of(node.input[0])
            for node in self.graph_def.node
            if node.op == "AssignVariableOp" and op_of(node.input[1]) in paths
        }
        return [variable for variable in self._source.variables if variable.op not in holders]

    @functools.cached_property
    def _has_only_variables(self) -> bool:
        """Whether a run leaves nothing behind but its variables' values: no table, no generator."""
        library = library_of(self.graph_def)
        return all(
            node.op.startswith(_ON_VARIABLES) or not signature_of(node, library).is_stateful
            for _, nodes in bodies(self.graph_def)
            for node in nodes
        )

    def _is_the_run(self, signature: Signature) -> bool:
        """Whether the signature returns all that the run fetches."""
        fetches = self._source.fetches
        outputs = {spec.tensor for spec in signature.outputs.values()}
        return self._source.origins is None and outputs.issuperset(fetches)

    def _empty_batch_checks(self, name: str, signature: Signature) -> Iterator[Check]:
        """Feeds inputs of no rows, where the signature leaves their number open."""
        if not any(_leaves_rows_open(spec) for spec in signature.inputs.values()):
            return
        inputs = self._inputs(name, signature, {}, is_empty=True)
        if self._is_loaded:
            yield from self._loader_checks(name, signature, inputs, ", empty batch")
        elif inputs is not None:
            yield self._session_check(name, f"{SESSION}, empty batch", signature, inputs)

    def _inputs(
        self, name: str, signature: Signature, feeds: Arrays, is_empty: bool = False
    ) -> Arrays | None:
        """{input: array}: what the run is fed, where the signature takes the same, else made up.

        None, with an entry in left_out, where nothing can be made up.
        """
        fed = self._as_the_run(signature, feeds)
        if fed.keys() == signature.inputs.keys():
            return fed
        fetches = [spec.tensor for spec in signature.outputs.values()]
        made: Arrays = {}
        why = ""
        for rank in _RANKS:
            specs = self._complete_specs(signature, rank, is_empty)
            try:
                made = generate_feeds(self.graph_def, specs, fetches, _SEED)
                break
            except TfplaceError as error:
                why = why or f"no inputs could be made up: {error}"
            if all(spec.shape is not None for spec in signature.inputs.values()):
                break
        if not made and signature.inputs:
            batch = ", empty batch" if is_empty else ""
            self.left_out.append(f"signature {name}{batch}: {why}")
            return None
        return {k: np.asarray(made[spec.tensor]) for k, spec in signature.inputs.items()} | fed

    def _as_the_run(self, signature: Signature, feeds: Arrays) -> dict[str, np.ndarray]:
        """{input: array that the run is fed}; none for a signature of other inputs."""
        run = self._source.signatures.get(run_name(self._source), signature)
        same = run.inputs.keys() == signature.inputs.keys() and all(
            spec.dtype == run.inputs[key].dtype for key, spec in signature.inputs.items()
        )
        tensors = {key: with_index(spec.tensor) for key, spec in run.inputs.items()}
        of_tensor = {with_index(tensor): tensor for tensor in feeds}
        return {
            key: np.asarray(feeds[of_tensor[tensor]])
            for key, tensor in tensors.items()
            if same and tensor in of_tensor
        }

    def _complete_specs(self, signature: Signature, rank: int, is_empty: bool) -> list[TensorSpec]:
        """Inputs at the shapes of the run, or guessed; of `rank` where even that is not known."""
        known = {spec.tensor: spec.shape for spec in self._source.feeds}
        specs = []
        for spec in signature.inputs.values():
            shape = known.get(spec.tensor)
            if shape is None:
                shape = _complete(spec.shape, rank)
            if is_empty and _leaves_rows_open(spec):
                shape = (0, *shape[1:])
            specs.append(TensorSpec(spec.tensor, spec.dtype, shape))
        return specs

    @functools.cached_property
    def _given_model(self) -> SavedModel | BareGraph:
        """The model as it came; a graph's variables start as the emitted model has them."""
        if self._source.saved_model_dir:
            return SavedModel(self._given_dir, self._tags)
        checkpoint = os.path.join(self.output_dir, "variables", "variables")
        return self._bare_graph(without_devices(given_graph(self._source)), checkpoint)

    def _bare_graph(self, graph_def: GraphDef, checkpoint: str = "") -> BareGraph:
        source = self._source
        graph = graph_def.SerializeToString()
        return BareGraph(graph, source.initialization, source.variables, checkpoint)


def _ends(signature: Signature, inputs: Arrays) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """{tensor: array} that a signature is fed, and {output: tensor} that is fetched."""
    feeds = {spec.tensor: inputs[key] for key, spec in signature.inputs.items()}
    return feeds, {key: spec.tensor for key, spec in signature.outputs.items()}


def _leaves_rows_open(spec: TensorSpec) -> bool:
    return bool(spec.shape) and spec.shape is not None and spec.shape[0] < 0


def _complete(shape: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    if shape is None:
        return (_GUESSED_SIZE,) * rank
    return tuple(_GUESSED_SIZE if size < 0 else size for size in shape)
