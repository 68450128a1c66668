"""A written split step that fails in a real run: is it the split, or the model itself?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from graphs.errors import VerificationError
from graphs.placement import Infeasible
from rewrite.emit_forms import tags_of
from tfplace.measurement.step_limits import StepLimits
from tfplace.measurement.trace import trace_saved_model
from tfplace.preparing.prepare import PreparedModel

ERROR = "error"
"""Why a run is infeasible that TensorFlow ends with an error: not memory, time or a crash."""


def require_unsplit_fails(
    prepared: PreparedModel,
    emitted: Path,
    tags: Sequence[str],
    failure: Infeasible,
    limits: StepLimits,
) -> None:
    """Nothing is written that doesn't run, where the model as it came does.

    Args:
      prepared: the step, split or not.
      emitted: what was written.
      tags: of its MetaGraphDef.
      failure: of a real run of it.
      limits: of the unsplit step's run.

    Raises:
      VerificationError: only the split step fails.
    """
    if prepared.split is None or failure.reason != ERROR:
        return
    given, source = prepared.split.given, prepared.source
    if given.saved_model_dir:
        directory, tags, fetches = given.saved_model_dir, tuple(tags_of(given)), given.fetches
    else:
        directory, fetches = str(emitted), source.whole_fetches
    ends = prepared.feeds, fetches
    if isinstance(trace_saved_model(directory, tags, ends, prepared.cluster, limits), Infeasible):
        return
    raise VerificationError(
        f"running the written model on {prepared.cluster.name}: found that its split step fails "
        f"({failure.message}) where the unsplit one runs; wanted both to run; nothing was "
        "written; please report it with the model, and leave --shards out"
    )
