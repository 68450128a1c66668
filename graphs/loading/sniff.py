"""Reads a model's file and tells its kind, from its content and never from its name."""

import dataclasses
import os
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path

from graphs.errors import ModelError
from graphs.host.did_you_mean import did_you_mean, did_you_mean_file
from graphs.loading import riegeli
from graphs.loading.chunked_proto import read_chunked
from graphs.protos import Message
from graphs.zoo import NAMES

KINDS_WANTED = "a GraphDef, a MetaGraphDef, a SavedModel directory, or a Keras .keras or .h5 file"
SAVED_MODEL_FILES = ("saved_model.pb", "saved_model.pbtxt", "saved_model.cpb")
MAX_PROTO_BYTES = 2**31 - 1
_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_KNOWN_ELSEWHERE = (
    (0, b"\x1f\x8b", "a gzip archive; unpack it"),
    (0, b"BZh", "a bzip2 archive; unpack it"),
    (
        4,
        b"TFL3",
        "a TensorFlow Lite model, which can't be trained or placed; use what it was made of",
    ),
    (257, b"ustar", "a tar archive; unpack it"),
    (0, b"\x80\x02", "a Python pickle, which is not safe to read; save the model with TensorFlow"),
    (0, b"\x80\x04", "a Python pickle, which is not safe to read; save the model with TensorFlow"),
)
_LENGTH, _VARINT = riegeli.LENGTH, riegeli.VARINT
# {field number: wire type} of each message, from tensorflow/core/{framework,protobuf}.
_BINARY_FIELDS = {
    "saved_model": {1: _VARINT, 2: _LENGTH},
    "graph_def": {1: _LENGTH, 2: _LENGTH, 3: _VARINT, 4: _LENGTH, 5: _LENGTH},
    "meta_graph_def": dict.fromkeys(range(1, 8), _LENGTH),
}
_TEXT_FIELDS = {
    "saved_model": ("saved_model_schema_version", "meta_graphs"),
    "graph_def": ("node", "library", "versions", "version", "debug_info"),
    "meta_graph_def": (
        "meta_info_def",
        "graph_def",
        "saver_def",
        "collection_def",
        "signature_def",
        "asset_file_def",
        "object_graph_def",
    ),
}
_OP_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")
_OP_TYPE = re.compile(r"[A-Za-z0-9_.>]+")
_FIRST_FIELD = re.compile(r"(?:\s|#[^\n]*\n)*([a-z_]+)\s*[:{<]")


@dataclasses.dataclass(frozen=True)
class ModelFile:
    """A model as it lies on disk.

    Attributes:
      path: as the user gave it.
      kind: "graph_def", "meta_graph_def", "saved_model", "keras_zip" or "keras_hdf5".
      proto: the parsed message; None for Keras.
      directory: of the SavedModel; empty for the other kinds.
    """

    path: str
    kind: str
    proto: Message
    directory: str = ""


def sniff(path: str | os.PathLike[str]) -> ModelFile:
    """Reads a model of any kind; ModelError: nothing is there, it can't be read, or is no model."""
    path = os.fspath(path)
    if path != path.encode(errors="replace").decode():
        raise ModelError(
            f"reading model {path!r}: its path is no text in UTF-8, which TensorFlow can't open; "
            "rename what isn't"
        )
    try:
        if os.path.isdir(path):
            return _sniff_directory(path)
        require_there(path)
        if not os.path.isfile(path):
            raise ModelError(f"reading model {path!r}: it is no file or directory; check the path")
        return _sniff_file(path)
    except OSError as error:
        raise ModelError(
            f"reading model {path!r}: {error.strerror or error}; make it readable and try again"
        ) from error


def require_there(path: str) -> None:
    """Raises ModelError where nothing has this path."""
    if not os.path.exists(path):
        raise ModelError(f"reading model {path!r}: there is no such file; {_instead_of(path)}")


def _instead_of(path: str) -> str:
    """What to do where no file has this path: what a user may have meant by it."""
    name = path.partition(":")[0]
    if name in NAMES:
        return f"the benchmark graph {name} is written by `tfplace graph {name} --output={name}.pb`"
    return f"check the path{did_you_mean_file(path) or did_you_mean(name, NAMES)}"


def _sniff_directory(path: str) -> ModelFile:
    """Reads the SavedModel in a directory."""
    for name in SAVED_MODEL_FILES:
        file = os.path.join(path, name)
        if os.path.isfile(file):
            model = _sniff_file(file)
            if model.kind != "saved_model":
                raise ModelError(
                    f"reading model {path!r}: its {name} holds a {model.kind}, no SavedModel; "
                    f"pass {file!r} itself"
                )
            return dataclasses.replace(model, path=path)
    entries = sorted(os.listdir(path))
    hint = "check the path"
    versions = [entry for entry in entries if entry.isdigit()]
    if any(entry.endswith(".index") for entry in entries):
        hint = "it holds a checkpoint, which has no graph: export a SavedModel or pass the .meta"
    elif versions:
        hint = f"pass one of its versions, such as {os.path.join(path, versions[-1])!r}"
    raise ModelError(
        f"reading model {path!r}: the directory has none of {', '.join(SAVED_MODEL_FILES)}; {hint}"
    )


def _sniff_file(path: str) -> ModelFile:
    content = Path(path).read_bytes()
    if not content:
        raise _not_a_model(path, "the file is empty", "save the model again")
    if content.startswith(b"PK\x03\x04"):
        return _sniff_zip(path)
    if content.startswith(_HDF5_MAGIC):
        return ModelFile(path, "keras_hdf5", None)
    for offset, magic, what in _KNOWN_ELSEWHERE:
        if content[offset : offset + len(magic)] == magic:
            raise ModelError(f"reading model {path!r}: it is {what}")
    if content.startswith(riegeli.SIGNATURE):
        proto = read_chunked(path, content, new_message("saved_model"))
        kind, proto = "saved_model", _with_content(path, "saved_model", proto)
    else:
        kind, proto = _parse_text(path, content) or _parse_binary(path, content)
    directory = os.path.dirname(os.path.abspath(path)) if kind == "saved_model" else ""
    return ModelFile(path, kind, proto, directory)


def _sniff_zip(path: str) -> ModelFile:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except zipfile.BadZipFile as error:
        raise _not_a_model(
            path, f"a zip file that can't be read ({error})", "save it again"
        ) from error
    if "config.json" in names:
        return ModelFile(path, "keras_zip", None)
    inside = [name for name in names if name.rpartition("/")[2] in SAVED_MODEL_FILES]
    hint = "unpack it and pass the directory" if inside else "a .keras file has a config.json"
    raise _not_a_model(path, "a zip file that is no Keras model", hint)


def _parse_text(path: str, content: bytes) -> tuple[str, Message] | None:
    """Kind and message of a text proto; None where the content is binary."""
    first = _FIRST_FIELD.match(content[:65536].decode("utf-8", "replace"))
    if first is None or b"\x00" in content[:65536]:
        return None
    kinds = [kind for kind, fields in _TEXT_FIELDS.items() if first[1] in fields]
    if not kinds:
        return None
    from google.protobuf import text_format

    proto = new_message(kinds[0])
    try:
        text_format.Parse(content.decode("utf-8"), proto)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise _not_a_model(
            path, f"a text {kinds[0]} with an error at {error}", "mend or save it again"
        ) from error
    except RecursionError as error:
        raise _not_a_model(
            path, f"a text {kinds[0]} nested too deep to read", "save it again"
        ) from error
    return kinds[0], _with_content(path, kinds[0], proto)


def _parse_binary(path: str, content: bytes) -> tuple[str, Message]:
    """Kind and message of a binary proto; of several possible kinds the most sensible one."""
    if len(content) > MAX_PROTO_BYTES:
        raise _not_a_model(
            path,
            f"a file of {len(content)} bytes",
            "a protocol buffer has at most 2 GiB: save the weights as variables",
        )
    try:
        fields = riegeli.outermost_fields(content)
    except riegeli.CutOffError as error:
        raise _not_a_model(path, f"damaged or cut off: {error}", "copy or save it again") from error
    except ValueError as error:
        raise _not_a_model(path, f"of no known format: {error}", "check the path") from error
    kinds = [kind for kind in _BINARY_FIELDS if _fits(kind, fields)]
    if not kinds:
        raise _not_a_model(path, "a protocol buffer of another type", "check the path")
    parsed = [(kind, proto) for kind in kinds if (proto := _parsed(kind, content)) is not None]
    if not parsed:
        raise _not_a_model(
            path, f"a damaged {' or '.join(kinds)}, or one nested too deep", "copy or save it again"
        )
    if len(parsed) > 1:  # a large graph is looked through once, in _with_content
        parsed.sort(key=lambda kind_and_proto: -_sense(*kind_and_proto))
    kind, proto = parsed[0]
    return kind, _with_content(path, kind, proto)


def _fits(kind: str, fields: Iterable[tuple[int, int]]) -> bool:
    """Whether a message of this kind may have these (field number, wire type) pairs."""
    return all(_BINARY_FIELDS[kind].get(number) == wire_type for number, wire_type in fields)


def _parsed(kind: str, content: bytes) -> Message:
    """The message; None where the bytes are no message of this kind."""
    from google.protobuf import message

    proto = new_message(kind)
    try:
        proto.ParseFromString(content)
    except message.DecodeError:
        return None
    return proto


def _sense(kind: str, proto: Message) -> float:
    """How much sense a parse makes: the share of its ops with a plausible name and type."""
    nodes = [(node.name, node.op) for graph in graphs_of(kind, proto) for node in graph.node]
    is_type = {op: bool(_OP_TYPE.fullmatch(op)) for op in {op for _, op in nodes}}
    good = sum(is_type[op] and _OP_NAME.fullmatch(name) is not None for name, op in nodes)
    return good / len(nodes) if nodes else 0.0


def graphs_of(kind: str, proto: Message) -> list[Message]:
    """The GraphDefs in a message of a kind."""
    if kind == "saved_model":
        return [meta_graph.graph_def for meta_graph in proto.meta_graphs]
    return [proto.graph_def] if kind == "meta_graph_def" else [proto]


def _with_content(path: str, kind: str, proto: Message) -> Message:
    """The proto itself, after a check that it has ops and that all have a name and a type."""
    if not any(graph.node for graph in graphs_of(kind, proto)):
        raise _not_a_model(path, f"a {kind} without a single op", "save the model again")
    if _sense(kind, proto) < 1.0:
        raise _not_a_model(
            path, f"a damaged {kind}: not all of its ops have a name and a type", "save it again"
        )
    return proto


def new_message(kind: str) -> Message:
    """An empty message of a kind."""
    from tensorflow.core.framework import graph_pb2
    from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

    return {
        "graph_def": graph_pb2.GraphDef,
        "meta_graph_def": meta_graph_pb2.MetaGraphDef,
        "saved_model": saved_model_pb2.SavedModel,
    }[kind]()


def _not_a_model(path: str, what: str, remedy: str) -> ModelError:
    return ModelError(f"reading model {path!r}: found {what}; wanted {KINDS_WANTED}; {remedy}")
