"""Proves that a written model loads in TensorFlow 2, with the signatures that it should have.

Its files are what they should be, op by op, and a session runs them: still `tf.saved_model.load`
may refuse a function that has lost an attribute, or an object whose function is gone.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

from graphs.host.child import AskedChild, ChildError
from graphs.loading.sniff import sniff
from graphs.source_model import SourceModel
from rewrite.clear_devices import bodies
from rewrite.emit_forms import write_cleared
from rewrite.split.prove_loads_messages import LoadedModels, LoadRequest

SECONDS = 300.0
"""After which it counts as not loaded."""
LOADS = "loads"
_CHILD = "rewrite.split.prove_loads_child"


@dataclasses.dataclass(frozen=True)
class LoadProof:
    """What came of loading a written model.

    Attributes:
      text: "loads" or "not loaded: why".
      defect: why only the written model doesn't load; "" where it does, or nobody can tell.
    """

    text: str
    defect: str = ""


def prove_loads(
    given: SourceModel,
    directory: Path,
    tags: Sequence[str],
    memory_bytes: float | None = None,
    seconds: float = SECONDS,
) -> LoadProof:
    """Loads a written model in a child process; where that fails, the model as it came, too.

    Args:
      given: the model as it came.
      directory: what was written.
      tags: of its MetaGraphDef.
      memory_bytes: of the child; None for no limit.
      seconds: what it may take.
    """
    meta_graphs = sniff(directory).proto.meta_graphs
    wanted = next(each for each in meta_graphs if set(each.meta_info_def.tags) == set(tags))
    with tempfile.TemporaryDirectory(prefix="tfplace_") as scratch:
        written = directory
        if any(_is_elsewhere(n.device) for _, nodes in bodies(wanted.graph_def) for n in nodes):
            written = Path(scratch, "without_devices")
            write_cleared(directory, written)
        request = LoadRequest(
            str(written.absolute()),
            tuple(tags),
            tuple(wanted.signature_def),
            given.saved_model_dir,
            () if given.meta_graph_def is None else tuple(given.meta_graph_def.signature_def),
            b"" if given.saved_model_dir else given.graph_def.SerializeToString(),
            memory_bytes,
        )
        return _proof(request, seconds)


def _proof(request: LoadRequest, seconds: float) -> LoadProof:
    try:
        with AskedChild(_CHILD) as child:
            child.ask(request)
            answer: LoadedModels = child.answer(seconds)
    except ChildError as error:
        before = error.last_message
        is_crash = not error.is_timeout and before is not None and before.loads_written
        return LoadProof(f"not loaded: {error}", f"loading it: {error}" if is_crash else "")
    if answer.ended:
        return LoadProof(f"not loaded: {answer.ended}")
    if not answer.written:
        return LoadProof(LOADS)
    if answer.given:
        return LoadProof(f"not loaded: the model as it came doesn't load either: {answer.given}")
    return LoadProof(f"not loaded: {answer.written}", answer.written)


def _is_elsewhere(device: str) -> bool:
    """Whether a device string means another task than this process."""
    return "/job:" in device and "/job:localhost" not in device
