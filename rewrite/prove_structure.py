"""Proves, without a run, that what lies on disk is the model as it came but for its placement.

Both are read from their files. What a placement may change is passed over: device strings, and the
copies of functions, which are taken for their originals. All else has to be equal, bit by bit: so
the proof takes seconds for a graph of any size, and the memory of the two graphs. A model that is
no SavedModel is proven twice: its ops are found in the emitted graph one by one, and the SavedModel
that was made of it before it was placed is compared whole.
"""

import copy
import dataclasses
import filecmp
import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from graphs.counted import counted
from graphs.host.scratch import scratch_directory
from graphs.loading.sniff import SAVED_MODEL_FILES, sniff
from graphs.protos import GraphDef, SavedModelProto, Signatures
from graphs.source_model import SourceModel
from rewrite.compare_graphs import same_graphs, same_imported, same_message
from rewrite.emit import EXTRA_DIRECTORY, GRAPH_FILE, clear_object_devices
from rewrite.model_builder import build_saved_model, given_graph
from rewrite.order.order_edges import (
    OrderEdge,
    check_order,
    forget_order,
    in_meta_graph,
    known_order,
    without_order,
)
from rewrite.pass_base import RewriteError
from rewrite.written_signature import has_own, whole_name, written_name

_FINGERPRINT = "fingerprint.pb"


@dataclasses.dataclass(frozen=True)
class StructureProof:
    """A proof that held.

    Attributes:
      compared: what was compared and is the same, a few words for each kind of thing.
      seconds: what it took.
    """

    compared: tuple[str, ...]
    seconds: float


def prove_structure(
    source: SourceModel,
    emitted_dir: str | os.PathLike[str],
    as_built: bytes | None = None,
    order: Collection[OrderEdge] = (),
) -> StructureProof:
    """Compares an emitted SavedModel, read back from disk, with the model as it came.

    Args:
      source: the model as it was loaded; its files are read again.
      as_built: the saved_model.pb that was made of a model that is none, as it was before it was
        placed; None to make it anew.
      order: the control edges that were added; exactly these have to be there, each within one
        device, and none may close a cycle.

    Raises:
      RewriteError: something other than a device differs; the message names the first.
      ModelError: one of the two can't be read.
    """
    began = time.monotonic()
    emitted = sniff(emitted_dir).proto
    for meta_graph in emitted.meta_graphs:
        _take_order_out(meta_graph.graph_def, in_meta_graph(source, meta_graph, order))
    if source.saved_model_dir:
        given = sniff(source.saved_model_dir).proto
        for meta_graph in given.meta_graphs:
            forget_order(meta_graph.graph_def)
        _same_saved_models(given, emitted)
        files = _same_files(Path(source.saved_model_dir), Path(emitted_dir))
    else:
        given = _rebuilt(source) if as_built is None else type(emitted).FromString(as_built)
        for meta_graph in given.meta_graphs:
            forget_order(meta_graph.graph_def)
        same_imported(without_order(given_graph(source)), emitted.meta_graphs[0].graph_def)
        _same_own_signatures(source, emitted.meta_graphs[0].signature_def)
        _same_saved_models(given, emitted)
        _same_graph_file(source, Path(emitted_dir), order)
        files = 0
    compared = (*_counted(given), f"{counted(files, 'file')} of variables and assets, byte by byte")
    return StructureProof(compared[: None if files else -1], time.monotonic() - began)


def _take_order_out(placed: GraphDef, order: Collection[OrderEdge]) -> None:
    """Checks that a graph has this order and no other, and takes it out in place."""
    check_order(placed, order)
    forget_order(placed)


def _rebuilt(source: SourceModel) -> SavedModelProto:
    """What `emit` makes a SavedModel of, made again without giving its variables values."""
    with scratch_directory() as folder:
        return sniff(build_saved_model(source, Path(folder), without_values=True).directory).proto


def _same_saved_models(given: SavedModelProto, placed: SavedModelProto) -> None:
    """Compares two SavedModels; takes the devices of objects out of both."""
    if len(given.meta_graphs) != len(placed.meta_graphs):
        raise RewriteError(
            f"comparing SavedModels: {len(given.meta_graphs)} MetaGraphDefs became "
            f"{len(placed.meta_graphs)}"
        )
    for before, after in zip(given.meta_graphs, placed.meta_graphs, strict=True):
        same_graphs(before.graph_def, after.graph_def)
        for meta_graph in (before, after):
            clear_object_devices(meta_graph)
        same_message("a MetaGraphDef", before, after, without=("graph_def",))
    same_message("the SavedModel", given, placed, without=("meta_graphs",))


def _same_own_signatures(source: SourceModel, emitted: Signatures) -> None:
    """A MetaGraphDef's signatures are there as they came, beside those that are made of its run."""
    own = {} if source.meta_graph_def is None else source.meta_graph_def.signature_def
    wanted = {*own, written_name(source)}
    if source.whole_fetches and not has_own(source):
        wanted.add(whole_name(source))
    if {*emitted} != wanted:
        found = sorted(emitted)
        raise RewriteError(f"comparing signatures: found {found}, wanted {sorted(wanted)}")
    for name, signature in own.items():
        same_message(f"signature {name!r}", signature, emitted[name])


def _same_graph_file(source: SourceModel, emitted: Path, order: Collection[OrderEdge]) -> None:
    """Compares the GraphDef that lies beside the SavedModel with the one that was given."""
    file = emitted / EXTRA_DIRECTORY / GRAPH_FILE
    if file.exists():
        given = given_graph(source)
        own = copy.deepcopy(given)  # it belongs to the source, and is changed by the comparison
        forget_order(own)
        placed = sniff(file).proto
        _take_order_out(placed, known_order(placed, order))
        same_graphs(own, placed)


def _same_files(given: Path, placed: Path) -> int:
    """Compares all files but the graph's and tfplace's own; returns how many there are."""
    files = [dict(_files(folder)) for folder in (given, placed)]
    for only, where in ((files[0].keys() - files[1].keys(), "the model as it came"),
                        (files[1].keys() - files[0].keys(), "the emitted model")):  # fmt: skip
        if only:
            raise RewriteError(f"comparing files: only {where} has {min(only)!r}")
    for name, path in files[0].items():
        # One that was linked is not read: variables may have gigabytes.
        other = files[1][name]
        if not (path.samefile(other) or filecmp.cmp(path, other, shallow=False)):
            raise RewriteError(f"comparing files: the bytes of {name!r} differ")
    return len(files[0])


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """(name, path) of a SavedModel's files that are copied as they are."""
    own = Path(EXTRA_DIRECTORY).parts
    for at, folders, names in os.walk(folder, followlinks=True):
        inside = Path(at).relative_to(folder)
        if inside.parts == own[:-1]:
            folders[:] = [name for name in folders if name != own[-1]]
        skipped = {*SAVED_MODEL_FILES, _FINGERPRINT} if inside == Path() else set()
        yield from ((str(inside / name), Path(at, name)) for name in names if name not in skipped)


def _counted(given: SavedModelProto) -> Iterator[str]:
    """What there is in a SavedModel, in words."""
    graphs = [meta_graph.graph_def for meta_graph in given.meta_graphs]
    functions = [function for graph in graphs for function in graph.library.function]
    ops = sum(len(graph.node) for graph in graphs) + sum(len(f.node_def) for f in functions)
    yield f"{counted(ops, 'op')} with their edges and attributes"
    yield counted(len(functions), "function")
    yield counted(sum(len(m.signature_def) for m in given.meta_graphs), "signature")
    objects = sum(len(m.object_graph_def.nodes) for m in given.meta_graphs)
    if objects:
        yield counted(objects, "object")
    yield "collections, saver and assets"
