"""Proves that a written model loads in TensorFlow 2, with the signatures that it should have.

Its files are what they should be, op by op, and a session runs them: still `tf.saved_model.load`
may refuse a function that has lost an attribute, or an object whose function is gone.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphs.host.child import AskedChild, ChildError
from graphs.loading.sniff import SAVED_MODEL_FILES, sniff
from graphs.names import op_of
from graphs.source_model import SourceModel
from rewrite.clear_devices import bodies
from rewrite.emit import leaving_out
from rewrite.emit_forms import write_cleared
from rewrite.one_of_alike import LEAST_NODES, one_of_alike
from rewrite.order.marks import MARK
from rewrite.split.prove_loads_messages import LoadedModels, LoadRequest

SECONDS = 300.0
"""After which it counts as not loaded."""
LOADS = "loads"
LOADS_ALIKE = "loads with one op of each kind"
_CHILD = "rewrite.split.prove_loads_child"


@dataclasses.dataclass(frozen=True)
class LoadProof:
    """What came of loading a written model.

    Attributes:
      text: "loads", "loads with one op of each kind" of a large graph, or "not loaded: why".
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
    request = LoadRequest(
        str(directory.absolute()),
        tuple(tags),
        tuple(wanted.signature_def),
        given.saved_model_dir,
        () if given.meta_graph_def is None else tuple(given.meta_graph_def.signature_def),
        b"" if given.saved_model_dir else given.graph_def.SerializeToString(),
        memory_bytes,
    )
    fewer = _with_one_of_alike(wanted)
    is_elsewhere = any(_is_elsewhere(n.device) for _, ns in bodies(wanted.graph_def) for n in ns)
    del meta_graphs, wanted
    with tempfile.TemporaryDirectory(prefix="tfplace_") as scratch:
        if fewer is not None:
            _write_beside(directory, fewer, Path(scratch, "one_of_alike"))
            at = _loadable(Path(scratch, "one_of_alike"), is_elsewhere, Path(scratch, "fewer"))
            if _proof(dataclasses.replace(request, directory=at), seconds).text == LOADS:
                return LoadProof(LOADS_ALIKE)  # else only the whole one tells a defect
        at = _loadable(directory, is_elsewhere, Path(scratch, "without_devices"))
        return _proof(dataclasses.replace(request, directory=at), seconds)


def _loadable(directory: Path, is_elsewhere: bool, cleared: Path) -> str:
    """The model, without devices where some mean other tasks than this process."""
    if is_elsewhere:
        write_cleared(directory, cleared)
    return str((cleared if is_elsewhere else directory).absolute())


def _with_one_of_alike(meta_graph: Any) -> Any:
    """A SavedModel with one op of each kind in its graph; None for a small one, or one of objects.

    TensorFlow's loader makes every op of a graph anew, one by one in Python: 70 s and 5 GB for
    180,000 of them.
    """
    collections = meta_graph.collection_def.values()
    if (
        len(meta_graph.graph_def.node) < LEAST_NODES
        or meta_graph.HasField("object_graph_def")
        or any(not each.HasField("node_list") for each in collections)
    ):
        return None
    saver = meta_graph.saver_def
    run = [saver.save_tensor_name, saver.restore_op_name, saver.filename_tensor_name]
    run += [name for each in collections for name in each.node_list.value]
    named = [
        info.name
        for signature in meta_graph.signature_def.values()
        for infos in (signature.inputs, signature.outputs)
        for info in infos.values()
    ]
    alike = one_of_alike(
        meta_graph.graph_def, {op_of(each) for each in run}, {op_of(each) for each in named}
    )
    if alike is None:
        return None
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    result = SavedModel(saved_model_schema_version=1)
    fewer = result.meta_graphs.add()
    fewer.CopyFrom(meta_graph)
    fewer.graph_def.CopyFrom(alike.graph_def)
    for node in fewer.graph_def.node:
        node.attr.pop(MARK, None)  # of what it waits for by an order some is left out
    return result


def _write_beside(directory: Path, saved_model: Any, target: Path) -> None:
    """Writes a SavedModel with the files of another one."""
    ignore = leaving_out(set(SAVED_MODEL_FILES), directory.absolute())
    shutil.copytree(directory.absolute(), target, ignore=ignore, copy_function=os.symlink)
    (target / SAVED_MODEL_FILES[0]).write_bytes(saved_model.SerializeToString())


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
