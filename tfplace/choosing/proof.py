"""The emitted model loaded again: does it compute the same, and where does it really run?"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from graphs.cluster import Cluster
from graphs.op_graph import IntArray
from graphs.placement import Infeasible
from graphs.source_model import SourceModel
from rewrite.verify import Verified, verify
from tfplace.measurement.device_name import device_key
from tfplace.measurement.step_limits import exactly
from tfplace.measurement.trace import devices_used as devices_in
from tfplace.measurement.trace import trace_run
from tfplace.measurement.training_run import SavedModelRun
from tfplace.measurement.workers import start_workers
from tfplace.preparing.prepare import PreparedModel, placed_run_graph

_log = logging.getLogger("tfplace")


NOT_VERIFIED = Verified(
    outputs_equal=False,
    max_abs_diff=0.0,
    compared=(),
    not_compared=("everything: interrupted before the comparison was done",),
)


def verified(prepared: PreparedModel, emitted: Path, device_of_op: IntArray) -> Verified:
    """Runs the given and the emitted model on the same inputs and compares."""
    placed = (
        placed_run_graph(prepared, device_of_op) if prepared.source.origins is not None else None
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
    tags = emitted_tags(emitted)
    if source.origins is None or not source.saved_model_dir:
        return SavedModelRun(str(emitted), tags, feeds, source.fetches)
    for signature in source.signatures.values():
        inputs = [spec.tensor for spec in signature.inputs.values()]
        if all(tensor in feeds for tensor in inputs):
            fed = {tensor: feeds[tensor] for tensor in inputs}
            fetches = [spec.tensor for spec in signature.outputs.values()]
            return SavedModelRun(str(emitted), tags, fed, fetches)
    return None


def emitted_tags(emitted: Path) -> tuple[str, ...]:
    """Tags of the first MetaGraphDef."""
    from graphs.loading.sniff import sniff

    return tuple(sniff(emitted).proto.meta_graphs[0].meta_info_def.tags)
