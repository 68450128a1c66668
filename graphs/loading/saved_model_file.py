"""Reads the parts of a SavedModel that a run needs: a MetaGraphDef, its signatures and files."""

import os
from collections.abc import Collection, Iterator, Mapping

from graphs import op_types
from graphs.errors import ModelError
from graphs.host.scratch import temporary_directory
from graphs.loading.sniff import ModelFile
from graphs.names import op_of
from graphs.protos import MetaGraphDef, SavedModelProto, TensorInfo, dtype_name, shape_of
from graphs.source_model import Signature, TensorSpec

SERVE_TAG = "serve"
# These signatures can't be run: they only name the initialisation and the training op.
INIT_SIGNATURE = "__saved_model_init_op"
TRAIN_SIGNATURE = "__saved_model_train_op"
_MAIN_OP_COLLECTIONS = ("saved_model_main_op", "legacy_init_op")
_ASSETS_COLLECTION = "saved_model_assets"
_ASSETS_DIRECTORY = "assets"
_LOADABLE_NAMES = ("saved_model.pb", "saved_model.pbtxt")


def choose_meta_graph(
    saved_model: SavedModelProto, tags: tuple[str, ...], path: str
) -> MetaGraphDef:
    """The MetaGraphDef with exactly `tags`; without tags the only one, or the one for serving.

    Args:
      tags: as the user gave them; may be empty.
      path: of the model, for the error.

    Raises:
      ModelError: there is none with these tags, or there are several and none is for serving.
    """
    meta_graphs = list(saved_model.meta_graphs)
    sets = [frozenset(meta_graph.meta_info_def.tags) for meta_graph in meta_graphs]
    wanted = frozenset(tags)
    if tags:
        matching = [m for m, have in zip(meta_graphs, sets, strict=True) if have == wanted]
    elif len(meta_graphs) == 1:
        matching = meta_graphs
    else:
        matching = [m for m, h in zip(meta_graphs, sets, strict=True) if h == {SERVE_TAG}]
    if not matching:
        have = " ".join("{" + ",".join(sorted(tag_set)) + "}" for tag_set in sets)
        raise ModelError(
            f"reading model {path!r}: found MetaGraphDefs with the tags {have or 'of none'}, "
            f"wanted {'{' + ','.join(sorted(wanted or {SERVE_TAG})) + '}'}; "
            "name one with --tags=A,B"
        )
    return matching[0]


def kind_of(meta_graph: MetaGraphDef) -> str:
    """ "saved_model_v2" where objects are kept, as TensorFlow 2 does, else "saved_model_v1"."""
    return "saved_model_v2" if meta_graph.HasField("object_graph_def") else "saved_model_v1"


def read_signatures(meta_graph: MetaGraphDef) -> dict[str, Signature]:
    """{name: Signature} of all signatures that are runs."""
    return {
        name: Signature(
            dict(_tensor_specs(signature.inputs)),
            dict(_tensor_specs(signature.outputs)),
            signature.method_name,
        )
        for name, signature in sorted(meta_graph.signature_def.items())
        if name not in (INIT_SIGNATURE, TRAIN_SIGNATURE)
    }


def _tensor_specs(infos: Mapping[str, TensorInfo]) -> Iterator[tuple[str, TensorSpec]]:
    for name, info in sorted(infos.items()):
        encoding = info.WhichOneof("encoding")
        if encoding == "coo_sparse":
            sparse = info.coo_sparse
            yield f"{name}/indices", TensorSpec(sparse.indices_tensor_name, "int64", (-1, -1))
            yield f"{name}/values", TensorSpec(sparse.values_tensor_name, _dtype(info), (-1,))
            yield f"{name}/shape", TensorSpec(sparse.dense_shape_tensor_name, "int64", (-1,))
        elif encoding == "composite_tensor":
            components = enumerate(info.composite_tensor.components)
            yield from _tensor_specs({f"{name}/{i}": part for i, part in components})
        elif info.name:
            yield name, TensorSpec(info.name, _dtype(info), shape_of(info.tensor_shape))


def _dtype(info: TensorInfo) -> str:
    return dtype_name(info.dtype, f"{info.name!r} of a signature") if info.dtype else ""


def collection_names(meta_graph: MetaGraphDef, key: str) -> list[str]:
    """The names in a collection of nodes; none where there is no such collection."""
    if meta_graph is None or key not in meta_graph.collection_def:
        return []
    return list(meta_graph.collection_def[key].node_list.value)


def main_ops(meta_graph: MetaGraphDef) -> list[str]:
    """The ops that the loader runs after it has restored the variables."""
    if INIT_SIGNATURE in meta_graph.signature_def:
        outputs = meta_graph.signature_def[INIT_SIGNATURE].outputs
        return [op_of(info.name) for _, info in sorted(outputs.items())]
    in_collections = (collection_names(meta_graph, key) for key in _MAIN_OP_COLLECTIONS)
    return [op_of(name) for name in next(filter(None, in_collections), [])]


def train_ops(meta_graph: MetaGraphDef) -> list[str]:
    """The ops of the train_op collection or of the signature that holds it."""
    if meta_graph is None:
        return []
    if TRAIN_SIGNATURE in meta_graph.signature_def:
        outputs = meta_graph.signature_def[TRAIN_SIGNATURE].outputs
        return [info.name.removesuffix(":0") for _, info in sorted(outputs.items()) if info.name]
    return collection_names(meta_graph, "train_op")


def asset_feeds(
    meta_graph: MetaGraphDef, directory: str, needed: Collection[str]
) -> dict[str, str]:
    """{tensor: path of the asset file} of the assets that are there.

    Args:
      directory: of the SavedModel.
      needed: ops that run when it is loaded.

    Raises:
      ModelError: an asset that is needed is missing, or one lies outside of the model.
    """
    feeds = {}
    for tensor, (name, file) in _declared_assets(meta_graph, directory).items():
        if os.path.exists(file):
            feeds[tensor] = file
        elif op_of(tensor) in needed:
            raise ModelError(
                f"reading model {directory!r}: its asset {name!r} is missing from "
                f"{_ASSETS_DIRECTORY!r}; copy the whole SavedModel directory"
            )
    return feeds


def missing_assets(meta_graph: MetaGraphDef, directory: str) -> list[str]:
    """A sentence about each asset that is declared and not there."""
    return [
        f"the asset {name!r}, which the model declares, is not in its folder; nothing that loading "
        "runs reads it"
        for name, file in _declared_assets(meta_graph, directory).values()
        if not os.path.exists(file)
    ]


def _declared_assets(meta_graph: MetaGraphDef, directory: str) -> dict[str, tuple[str, str]]:
    """{tensor: (name, path)} of all assets; ModelError: one lies outside of the model."""
    assets = list(meta_graph.asset_file_def)
    if not assets and _ASSETS_COLLECTION in meta_graph.collection_def:
        from tensorflow.core.protobuf import meta_graph_pb2

        for packed in meta_graph.collection_def[_ASSETS_COLLECTION].any_list.value:
            asset = meta_graph_pb2.AssetFileDef()
            packed.Unpack(asset)
            assets.append(asset)
    folder = os.path.join(os.path.abspath(directory), _ASSETS_DIRECTORY)
    declared = {}
    for asset in assets:
        file = os.path.join(folder, asset.filename)
        if os.path.commonpath([folder, os.path.abspath(file)]) != folder:
            raise ModelError(
                f"reading model {directory!r}: its asset {asset.filename!r} lies outside of "
                f"{_ASSETS_DIRECTORY!r}; wanted a name in there: don't trust this model"
            )
        declared[asset.tensor_info.name] = (asset.filename, file)
    return declared


def checkpoint_prefix(meta_graph: MetaGraphDef, directory: str) -> str:
    """The prefix of the variables' checkpoint; empty where nothing is saved.

    Raises:
      ModelError: the model has variables to restore, their files are missing.
    """
    prefix = os.path.join(os.path.abspath(directory), "variables", "variables")
    if os.path.exists(prefix + ".index") or os.path.exists(prefix):
        return prefix
    if meta_graph.saver_def.restore_op_name and any(
        node.op in op_types.VARIABLES for node in meta_graph.graph_def.node
    ):
        raise ModelError(
            f"reading model {directory!r}: its variables are missing, wanted "
            f"{prefix + '.index'!r}; copy the whole SavedModel directory"
        )
    return ""


def loadable_directory(file: ModelFile) -> str:
    """A directory that TensorFlow loads as a SavedModel.

    A proto that is chunked or has an unusual name gets a temporary directory in which it is a
    saved_model.pb, beside links to its variables and assets; it lives as long as this process.

    Raises:
      ModelError: the proto is too large for TensorFlow to read it back.
    """
    names = _LOADABLE_NAMES if os.path.isdir(file.path) else (os.path.basename(file.path),)
    if any(
        name in _LOADABLE_NAMES and os.path.exists(os.path.join(file.directory, name))
        for name in names
    ):
        return file.directory
    linked = temporary_directory()
    try:
        content = file.proto.SerializeToString()
    except Exception as error:  # protobuf's EncodeError, or ValueError, by version
        raise ModelError(
            f"reading model {file.path!r}: its graph has more than 2 GiB, which TensorFlow can't "
            "load; save large constants as variables"
        ) from error
    with open(os.path.join(linked, _LOADABLE_NAMES[0]), "wb") as copy:
        copy.write(content)
    for name in ("variables", _ASSETS_DIRECTORY):
        target = os.path.join(file.directory, name)
        if os.path.isdir(target):
            os.symlink(target, os.path.join(linked, name))
    return linked
