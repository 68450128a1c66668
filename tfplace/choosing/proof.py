"""The emitted model loaded again: does it compute the same, and where does it really run?"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from graphs.cluster import Cluster
from graphs.errors import VerificationError
from graphs.op_graph import IntArray
from graphs.placement import Infeasible
from graphs.source_model import SourceModel
from rewrite.emit_forms import tags_of
from rewrite.verify import Verified, verify
from tfplace.bounds.lower_bound import lower_bound_seconds
from tfplace.choosing.what_if import DataParallel, data_parallel_of
from tfplace.interruption import interruptible
from tfplace.measurement.device_name import device_key
from tfplace.measurement.step_limits import exactly
from tfplace.measurement.trace import devices_used as devices_in
from tfplace.measurement.trace import trace_run
from tfplace.measurement.training_run import SavedModelRun
from tfplace.measurement.workers import start_workers
from tfplace.preparing.prepare import PreparedModel

_log = logging.getLogger("tfplace")


NOT_VERIFIED = Verified(
    outputs_equal=False,
    max_abs_diff=0.0,
    compared=(),
    not_compared=("everything: interrupted before the comparison was done",),
)


@dataclasses.dataclass(frozen=True)
class Proof:
    """What the emitted model is worth.

    Attributes:
      verified: given and emitted model compared.
      lower_bound_seconds: of every placement; None where it was not computed.
      devices_used: {device: {"ops": n, "seconds": t}} of a traced run of the emitted model.
      interrupted: whether something was left out for a Ctrl-C or SIGTERM.
      data_parallel: what plain data parallelism would take; None where it makes no sense.
    """

    verified: Verified
    lower_bound_seconds: float | None
    devices_used: Mapping[str, Mapping[str, float]]
    interrupted: bool
    data_parallel: DataParallel | None = None


def prove(prepared: PreparedModel, device_of_op: IntArray, emitted: Path, is_traced: bool) -> Proof:
    """Loads the emitted model, compares it with the given one, and bounds what was reachable.

    After Ctrl-C whatever takes long is left out.

    Args:
      prepared: the model as it came, and its problem.
      device_of_op: i4[N] the placement that was emitted.
      emitted: where it lies.
      is_traced: whether to find out by a traced run which devices really work.

    Raises:
      VerificationError: the emitted model computes something else.
    """
    with interruptible() as interruption:
        comparison = interruption.unless_seen(
            lambda: verified(prepared, emitted, device_of_op), NOT_VERIFIED
        )
        _require_same(comparison)
        bound = interruption.unless_seen(lambda: lower_bound_seconds(prepared.problem), None)
        used: Mapping[str, Any] = {}
        if is_traced:
            used = interruption.unless_seen(lambda: devices_used(prepared, emitted), {})
        estimate = data_parallel_of(prepared)
        return Proof(comparison, bound, used, interruption.seen, estimate)


def _require_same(comparison: Verified) -> None:
    """A placed model that computes something else is worse than none: nothing is left of it."""
    if comparison.differing:
        raise VerificationError(
            "comparing the emitted model with the model as it came: found "
            f"{len(comparison.differing)} differences, the first: {comparison.differing[0]}; "
            "wanted equal values; nothing was written; please report it with the model"
        )


def verified(prepared: PreparedModel, emitted: Path, device_of_op: IntArray) -> Verified:
    """Runs the given and the emitted model on the same inputs and compares."""
    placed = (
        prepared.placed_run_graph(device_of_op) if prepared.source.origins is not None else None
    )
    with session_target(prepared.cluster, prepared.is_present) as target:
        return verify(prepared.source, emitted, prepared.feeds, target, placed)


@contextlib.contextmanager
def session_target(cluster: Cluster, is_present: bool) -> Iterator[str]:
    """What a v1 Session connects to; workers without addresses live as long as the context."""
    first = cluster.devices[0]
    if not is_present or not device_key(first.name).job:
        yield ""
    elif first.address:
        yield f"grpc://{first.address}"
    else:
        with start_workers(cluster.num_devices) as pool:
            yield pool.target


def devices_used(prepared: PreparedModel, emitted: Path) -> Mapping[str, Any]:
    """{device: {"ops": n, "seconds": t}} from a trace of the emitted model, loaded again.

    A training step that was made for the search is not in a SavedModel that had none; its
    first signature is traced then.
    """
    run = _emitted_run(prepared.source, emitted, prepared.feeds)
    if run is None:
        return {}
    traces = trace_run(None, run, prepared.cluster, exactly(2, warmup_steps=2), True)
    if isinstance(traces, Infeasible):
        _log.warning("tracing the emitted model: %s", traces.message)
        return {}
    return {
        name: {"ops": use.num_ops, "seconds": use.seconds}
        for name, use in devices_in(traces).items()
    }


def _emitted_run(
    source: SourceModel, emitted: Path, feeds: Mapping[str, Any]
) -> SavedModelRun | None:
    tags = _emitted_tags(source, emitted)
    if source.origins is None or not source.saved_model_dir:
        return SavedModelRun(str(emitted), tags, feeds, source.fetches)
    for signature in source.signatures.values():
        inputs = [spec.tensor for spec in signature.inputs.values()]
        if all(tensor in feeds for tensor in inputs):
            fed = {tensor: feeds[tensor] for tensor in inputs}
            fetches = [spec.tensor for spec in signature.outputs.values()]
            return SavedModelRun(str(emitted), tags, fed, fetches)
    return None


def _emitted_tags(source: SourceModel, emitted: Path) -> tuple[str, ...]:
    """The tags of the MetaGraphDef that has the run; a model that came as a graph has only one."""
    from graphs.loading.sniff import sniff

    if source.saved_model_dir:
        return tuple(tags_of(source))
    return tuple(sniff(emitted).proto.meta_graphs[0].meta_info_def.tags)
