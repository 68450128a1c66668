"""Proves that the emitted model computes what the model as it came does.

Both are loaded and run in a child process on the same inputs from the same variable values:
the run that was placed, and every signature; through a v1 Session, and through
tf.saved_model.load with and without variables on their devices. Where they disagree, the
original runs again, and what it computes differently the second time is listed, not compared.
"""

from __future__ import annotations

import dataclasses
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphs.errors import ModelError, TfplaceError
from graphs.loading.feeds import generate_feeds
from graphs.loading.saved_model_file import SERVE_TAG
from graphs.loading.sniff import sniff
from graphs.names import with_index
from graphs.source_model import Signature, SourceModel, TensorSpec
from rewrite.child_process import ChildError, run_child
from rewrite.clear_devices import ClearDevices, bodies
from rewrite.emit import given_graph
from rewrite.signature_key import signature_key

RTOL = 1e-5
"""Relative to the largest value of a float32 tensor."""
TIMEOUT_SECONDS = 600.0
BUDGET_SECONDS = 60.0
"""After the first check, which is always made, the others are made as long as this suffices."""
_GUESSED_SIZE = 2
_SEED = 0
_CPU = re.compile(r"/(?:device:)?cpu:(\d+)$", re.IGNORECASE)

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Verified:
    """What was compared, and how far it agrees.

    Attributes:
      outputs_equal: something was compared, and all of it agrees within the tolerance.
      max_abs_diff: largest absolute difference in what was compared; 0.0 if bitwise equal.
      compared: one name per compared value.
      not_compared: (name, why) of what could not be: it changes from run to run, the original
        itself fails, or its devices need a cluster.
      differing: (name, how) of what disagrees, or fails only in the emitted model.
    """

    outputs_equal: bool
    max_abs_diff: float
    compared: Sequence[str]
    not_compared: Sequence[tuple[str, str]]
    differing: Sequence[tuple[str, str]] = ()


def verify(
    source: SourceModel,
    output_dir: str | os.PathLike[str],
    feeds: Mapping[str, Any],
    cluster_target: str = "",
    placed_graph_def: Any = None,
    rtol: float = RTOL,
) -> Verified:
    """Runs the given and the emitted model and compares.

    Args:
      source: the model as it was loaded.
      output_dir: what emit made of it.
      feeds: {tensor "op:i": array} of the run.
      cluster_target: "grpc://host:port" of a cluster that has the devices; empty for this
        process, where devices that are not there are replaced.
      placed_graph_def: the placed run graph; needed for a run whose training step was made for
        the search and so isn't in the emitted model.
      rtol: for float32, relative to a tensor's largest value; other floats in proportion to
        their precision.

    Raises:
      ModelError: the model as it came can't be loaded, since its files are damaged.
    """
    saved_model = sniff(output_dir).proto
    graphs = [meta_graph.graph_def for meta_graph in saved_model.meta_graphs]
    devices = {n.device for graph in graphs for _, nodes in bodies(graph) for n in nodes}
    with tempfile.TemporaryDirectory(prefix="tfplace_") as scratch:
        plan = _Plan(source, os.path.abspath(output_dir), Path(scratch), cluster_target)
        plan.needs_cluster = not cluster_target and any("/job:" in device for device in devices)
        checks = list(plan.checks(feeds, placed_graph_def))
        request = {
            "target": cluster_target,
            "num_cpus": 1 + max((int(m[1]) for d in devices if (m := _CPU.search(d))), default=0),
            "arrays": plan.write_arrays(),
            "rtol": rtol,
            "budget_seconds": BUDGET_SECONDS,
        }
        outcomes = _run_checks(request, checks)
    _require_undamaged(source, outcomes)
    return _summed_up(outcomes, plan.left_out)


class _Plan:
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
        is_saved_model = bool(source.saved_model_dir) and meta_graph is not None
        self.tags = list(meta_graph.meta_info_def.tags) if is_saved_model else [SERVE_TAG]

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
            given = {**self._session(source.saved_model_dir), **run}
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
        num_steps = 2 if self.source.mode == "train" else 1
        by_tensor: Json = {
            "feeds": {spec.tensor: arrays[key] for key, spec in signature.inputs.items()},
            "fetches": {key: spec.tensor for key, spec in signature.outputs.items()},
            "num_steps": num_steps,
        }
        source = self.source
        if source.saved_model_dir:
            given = {**self._session(source.saved_model_dir), **by_tensor}
        else:
            given = {**self._graph("given", given_graph(source), from_emitted=True), **by_tensor}
        placed = {**self._session(self.output_dir), **by_tensor, "signature": name}
        yield _check(f"signature {name} (v1 Session)", given, placed)
        if not source.saved_model_dir or self.target:
            return
        by_key: Json = {
            "feeds": dict(arrays),
            "fetches": {key: key for key in signature.outputs},
            "num_steps": num_steps,
        }
        for how, policy in _LOADS:
            yield _check(
                f"signature {name} ({how})",
                {**self._load(source.saved_model_dir, name, False), **by_key},
                {**self._load(self.output_dir, name, policy), **by_key},
            )

    def _signature_arrays(self, name: str, signature: Signature) -> dict[str, str] | None:
        """{input: array name}; None, and a word about it, where inputs can't be made up."""
        known = {spec.tensor: spec.shape for spec in self.source.feeds}
        specs = [
            TensorSpec(spec.tensor, spec.dtype, known.get(spec.tensor) or _complete(spec.shape))
            for spec in signature.inputs.values()
        ]
        fetches = [spec.tensor for spec in signature.outputs.values()]
        try:
            made = generate_feeds(self.source.graph_def, specs, fetches, _SEED)
        except TfplaceError as error:
            self.left_out.append((f"signature {name}", f"no inputs could be made up: {error}"))
            return None
        by_key = {key: made[spec.tensor] for key, spec in signature.inputs.items()}
        return self._array_names(name, by_key)

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


def _complete(shape: tuple[int, ...] | None) -> tuple[int, ...]:
    if shape is None:
        return (_GUESSED_SIZE,)
    return tuple(_GUESSED_SIZE if size < 0 else size for size in shape)


def _run_checks(request: Json, checks: list[Json]) -> list[Json]:
    """Outcomes of all checks; one that kills the child is an outcome too."""
    outcomes: list[Json] = []
    while checks:
        try:
            result = run_child(
                "rewrite.verify_child", {**request, "checks": checks}, TIMEOUT_SECONDS
            )
            return outcomes + result["outcomes"]
        except ChildError as error:
            done = list(error.partial.get("outcomes", ()))
            label = checks[len(done)]["label"]
            in_placed = error.partial.get("running") == "placed"
            outcomes += done
            outcomes.append(
                {
                    "label": label,
                    "values": [],
                    "failed" if in_placed else "not_run": str(error),
                }
            )
            checks = checks[len(done) + 1 :]
    return outcomes


def _require_undamaged(source: SourceModel, outcomes: Sequence[Json]) -> None:
    """What can't be loaded as it came would not be worth anything placed."""
    damaged = [outcome["damaged"] for outcome in outcomes if "damaged" in outcome]
    if damaged:
        raise ModelError(
            f"loading the model {source.path!r} as it came: its variables are damaged "
            f"({damaged[0]}); copy the whole model again"
        )


def _summed_up(outcomes: Sequence[Json], left_out: Sequence[tuple[str, str]]) -> Verified:
    compared: list[str] = []
    not_compared = list(left_out)
    differing: list[tuple[str, str]] = []
    largest = 0.0
    for outcome in outcomes:
        label = outcome["label"]
        if "failed" in outcome:
            differing.append((label, f"only the emitted model fails: {outcome['failed']}"))
        if "left_out" in outcome:
            not_compared.append((label, outcome["left_out"]))
        if "not_run" in outcome:
            not_compared.append((label, f"the model as it came fails: {outcome['not_run']}"))
        for value in outcome["values"]:
            name = f"{label}: {value['name']}"
            if value["why"]:
                not_compared.append((name, value["why"]))
                continue
            compared.append(name)
            largest = max(largest, value["max_abs_diff"])
            if not value["equal"]:
                differing.append((name, f"differs by {value['max_abs_diff']:.3g}"))
    return Verified(
        outputs_equal=bool(compared) and not differing,
        max_abs_diff=largest,
        compared=tuple(compared),
        not_compared=tuple(not_compared),
        differing=tuple(differing),
    )
