"""What is run to compare an emitted model with the model as it came, and on which inputs."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphs.errors import TfplaceError
from graphs.graph_view import GraphView
from graphs.loading.feeds import generate_feeds
from graphs.loading.reachable_ops import assigns
from graphs.loading.saved_model_file import SERVE_TAG
from graphs.names import with_index
from graphs.source_model import Signature, SourceModel, TensorSpec
from rewrite.clear_devices import ClearDevices, bodies
from rewrite.emit import given_graph
from rewrite.emit_forms import write_cleared
from rewrite.signature_key import signature_key

_GUESSED_SIZE = 2
_SEED = 0
_RANKS = (0, 1, 2, 3, 4)
"""Tried one after the other, until TensorFlow can run it, for an input of unknown rank."""

Json = dict[str, Any]


class Plan:
    """Works out what to run; collects the input arrays under names."""

    def __init__(self, source: SourceModel, output_dir: str, scratch: Path, target: str):
        self.source = source
        self.output_dir = output_dir
        self.scratch = scratch
        self.target = target
        self.needs_cluster = False
        self.arrays: dict[str, Any] = {}
        self.left_out: list[tuple[str, str]] = []
        meta_graph = source.meta_graph_def
        # A run graph with a step that was made has placeholders where its run is fed, which may
        # be in the middle of what another signature computes.
        self.graph_def = source.graph_def if meta_graph is None else meta_graph.graph_def
        self.view = GraphView(self.graph_def)
        is_saved_model = bool(source.saved_model_dir) and meta_graph is not None
        self.tags = list(meta_graph.meta_info_def.tags) if is_saved_model else [SERVE_TAG]
        self.given_dir = source.saved_model_dir
        if self.given_dir and not target and _names_other_tasks(self.graph_def):
            # Its devices may be of a cluster that is gone; without any it computes the same.
            self.given_dir = str(scratch / "given_without_devices")
            write_cleared(Path(source.saved_model_dir), Path(self.given_dir))

    def checks(self, feeds: Mapping[str, Any], placed_graph_def: Any) -> Iterator[Json]:
        """Each is {"label", "given": runner, "placed": runner}."""
        signatures = self.source.signatures
        names = ["the run", *(f"signature {name}" for name in signatures)]
        if self.needs_cluster:
            why = "devices of other tasks need the target of a session in their cluster"
            self.left_out += [(name, why) for name in names]
            return
        yield from self._run_checks(feeds, placed_graph_def)
        for name, signature in signatures.items():
            arrays = self._signature_arrays(name, signature)
            if arrays is not None:
                yield from self._signature_checks(name, signature, arrays)
        for name, signature in signatures.items():
            yield from self._empty_batch_checks(name, signature)

    def write_arrays(self) -> str:
        path = self.scratch / "arrays.npz"
        np.savez(path, **self.arrays)
        return str(path)

    def _run_checks(self, feeds: Mapping[str, Any], placed_graph_def: Any) -> Iterator[Json]:
        source = self.source
        run: Json = {
            "feeds": self._array_names("run", {with_index(k): v for k, v in feeds.items()}),
            "fetches": {fetch: fetch for fetch in source.fetches if ":" in fetch},
            "ops": [fetch for fetch in source.fetches if ":" not in fetch],
            "num_steps": 2 if source.mode == "train" else 1,
            "variables": [dataclasses.asdict(v) for v in source.variables]
            if source.mode == "train"
            else [],
        }
        if not source.saved_model_dir:
            given = {**self._graph("given", given_graph(source), from_emitted=True), **run}
            yield _check("the run", given, {**self._session(self.output_dir), **run})
            yield from self._emitted_run_checks(given, run)
        elif source.origins is None:
            given = {**self._session(self.given_dir), **run}
            yield _check("the run", given, {**self._session(self.output_dir), **run})
        elif placed_graph_def is not None:
            given = {**self._graph("given", source.graph_def), **run}
            placed = {**self._graph("placed", placed_graph_def, as_placed=True), **run}
            yield _check("the run, with the training step that was made for it", given, placed)
        else:
            why = "its training step was made for the search and is not in the emitted model"
            self.left_out.append(("the run", why))

    def _emitted_run_checks(self, given: Json, run: Json) -> Iterator[Json]:
        """The signature that emit has made of a graph's run, against the run itself."""
        name = "train_step" if self.source.mode == "train" else "serving_default"
        keys = {fetch: signature_key(fetch) for fetch in run["fetches"]}
        if not keys or self.target:
            return
        feeds = {signature_key(tensor): array for tensor, array in run["feeds"].items()}
        for how, policy in _LOADS:
            placed = self._load(self.output_dir, name, policy)
            placed |= {"feeds": feeds, "fetches": keys, "num_steps": run["num_steps"]}
            yield _check(f"signature {name} ({how})", {**given, "variables": []}, placed)

    def _signature_checks(
        self, name: str, signature: Signature, arrays: Mapping[str, str]
    ) -> Iterator[Json]:
        by_tensor = self._by_tensor(signature, arrays)
        yield self._session_check(name, "v1 Session", by_tensor)
        if not self.source.saved_model_dir or self.target:
            return
        by_key: Json = {
            "feeds": dict(arrays),
            "fetches": {key: key for key in signature.outputs},
            "num_steps": by_tensor["num_steps"],
        }
        for how, policy in _LOADS:
            yield _check(
                f"signature {name} ({how})",
                {**self._load(self.given_dir, name, False), **by_key},
                {**self._load(self.output_dir, name, policy), **by_key},
            )

    def _by_tensor(self, signature: Signature, arrays: Mapping[str, str]) -> Json:
        """A signature as tensors; one that changes variables runs twice, and they are compared."""
        outputs = [spec.tensor for spec in signature.outputs.values()]
        changes = assigns(self.view, outputs)
        return {
            "feeds": {spec.tensor: arrays[key] for key, spec in signature.inputs.items()},
            "fetches": {key: spec.tensor for key, spec in signature.outputs.items()},
            "num_steps": 2 if changes or self.source.mode == "train" else 1,
            "variables": [dataclasses.asdict(v) for v in self.source.variables if changes],
        }

    def _session_check(self, name: str, how: str, by_tensor: Json) -> Json:
        source = self.source
        if source.saved_model_dir:
            given = {**self._session(self.given_dir), **by_tensor}
        else:
            given = {**self._graph("given", given_graph(source), from_emitted=True), **by_tensor}
        placed = {**self._session(self.output_dir), **by_tensor, "signature": name}
        return _check(f"signature {name} ({how})", given, placed)

    def _empty_batch_checks(self, name: str, signature: Signature) -> Iterator[Json]:
        """Inputs of no rows, where the signature leaves their number open."""
        if not any(_leaves_rows_open(spec) for spec in signature.inputs.values()):
            return
        arrays = self._signature_arrays(name, signature, is_empty=True)
        if arrays is not None:
            yield self._session_check(
                name, "v1 Session, empty batch", self._by_tensor(signature, arrays)
            )

    def _signature_arrays(
        self, name: str, signature: Signature, is_empty: bool = False
    ) -> dict[str, str] | None:
        """{input: array name}; None, and a word about it, where inputs can't be made up."""
        fetches = [spec.tensor for spec in signature.outputs.values()]
        made: Mapping[str, Any] = {}
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
            self.left_out.append((f"signature {name}{batch}", why))
            return None
        by_key = {key: made[spec.tensor] for key, spec in signature.inputs.items()}
        return self._array_names(name, by_key)

    def _complete_specs(self, signature: Signature, rank: int, is_empty: bool) -> list[TensorSpec]:
        """Inputs at the shapes of the run, or guessed; of `rank` where even that is not known."""
        known = {spec.tensor: spec.shape for spec in self.source.feeds}
        specs = []
        for spec in signature.inputs.values():
            shape = known.get(spec.tensor)
            if shape is None:
                shape = _complete(spec.shape, rank)
            if is_empty and _leaves_rows_open(spec):
                shape = (0, *shape[1:])
            specs.append(TensorSpec(spec.tensor, spec.dtype, shape))
        return specs

    def _array_names(self, prefix: str, arrays: Mapping[str, Any]) -> dict[str, str]:
        """Keeps arrays for the child; returns {key: name of its array}."""
        names = {}
        for key, value in arrays.items():
            array = np.asarray(value)
            names[key] = f"array_{len(self.arrays)}"
            # npz has no bfloat16 and float8; float32 holds them exactly.
            self.arrays[names[key]] = array.astype(np.float32) if array.dtype.kind == "V" else array
        return names

    def _session(self, directory: str) -> Json:
        return {"how": "session", "saved_model": directory, "tags": self.tags}

    def _load(self, directory: str, signature: str, variable_devices: bool) -> Json:
        return {
            "how": "load",
            "saved_model": directory,
            "tags": self.tags,
            "signature": signature,
            "variable_devices": variable_devices,
        }

    def _graph(
        self, name: str, graph_def: Any, from_emitted: bool = False, as_placed: bool = False
    ) -> Json:
        """A bare graph; from_emitted: its variables start as the emitted model has them."""
        path = self.scratch / f"{name}.pb"
        if not path.exists():
            kept = graph_def if as_placed else ClearDevices()(graph_def).graph_def
            path.write_bytes(kept.SerializeToString())
        prefix = os.path.join(self.output_dir, "variables", "variables")
        return {
            "how": "session",
            "graph_def": str(path),
            "initialization": dataclasses.asdict(self.source.initialization),
            "initialized": [dataclasses.asdict(v) for v in self.source.variables],
            "checkpoint": prefix if from_emitted else "",
        }


_LOADS = (
    ("tf.saved_model.load", False),
    ("tf.saved_model.load, variables on their devices", True),
)


def _check(label: str, given: Json, placed: Json) -> Json:
    return {"label": label, "given": given, "placed": placed}


def _names_other_tasks(graph_def: Any) -> bool:
    """Whether a device string means another task than this process."""
    return any(
        "/job:" in node.device and "/job:localhost" not in node.device
        for _, nodes in bodies(graph_def)
        for node in nodes
    )


def _leaves_rows_open(spec: TensorSpec) -> bool:
    return bool(spec.shape) and spec.shape is not None and spec.shape[0] < 0


def _complete(shape: tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    if shape is None:
        return (_GUESSED_SIZE,) * rank
    return tuple(_GUESSED_SIZE if size < 0 else size for size in shape)
