"""Puts protos together that TensorFlow's splitter wrote in chunks.

Source: tensorflow/tools/proto_splitter (chunk.proto and its in-depth guide). TensorFlow's Python
package leaves its merger out, so that `tf.saved_model.load` can't read such files either.
"""

import functools
from collections.abc import Sequence

from graphs.errors import ModelError
from graphs.host.text_table import table_rows
from graphs.loading.riegeli import read_records
from graphs.protos import Message

_TYPES = {"uint64": 4, "uint32": 13, "int64": 3, "int32": 5, "bool": 8, "string": 9, "message": 11}


def read_chunked(path: str, content: bytes, message: Message) -> Message:
    """Fills `message` from a .cpb file's content and returns it; ModelError: damaged or cut off."""
    from google.protobuf import message as protobuf

    records = read_records(content, path)
    try:
        *_, last = records.values()
        metadata = message_class("ChunkMetadata")()
        metadata.ParseFromString(last)
        _merge(message, metadata.message, [records[chunk.offset] for chunk in metadata.chunks])
    except (ValueError, LookupError, TypeError, AttributeError, protobuf.DecodeError) as error:
        raise ModelError(
            f"reading the chunked model {path!r}: its chunks don't fit together ({error!r}); "
            "copy or save the model again"
        ) from error
    return message


def _merge(message: Message, chunked: Message, chunks: Sequence[bytes]) -> None:
    """Merges a chunk into `message`, then the chunks of its fields, outer ones first."""
    if chunked.HasField("chunk_index"):
        message.MergeFromString(chunks[chunked.chunk_index])
    for field in sorted(chunked.chunked_fields, key=_order):
        _merge_field(message, field, chunks)


def _order(chunked_field: Message) -> tuple[tuple[int, ...], int]:
    """A sort key: outer fields before those inside them, elements of a list by their index."""
    path = tuple(
        tag.field if tag.HasField("field") else tag.index for tag in chunked_field.field_tag
    )
    return path, chunked_field.message.chunk_index


def _merge_field(message: Message, chunked_field: Message, chunks: Sequence[bytes]) -> None:
    """Merges a chunk into the field of `message` that the chunk's tags lead to."""
    tags = list(chunked_field.field_tag)
    while tags:
        field = message.DESCRIPTOR.fields_by_number[tags.pop(0).field]
        key = tags.pop(0) if tags and not tags[0].HasField("field") else None
        if field.message_type is None:
            _set_value(message, field, key, chunks[chunked_field.message.chunk_index])
            return
        message = _inner(message, field, key)
    _merge(message, chunked_field.message, chunks)


def _inner(message: Message, field: Message, key: Message) -> Message:
    """The message in a field; it is made where it is not there yet."""
    value = getattr(message, field.name)
    if field.message_type.GetOptions().map_entry:
        return value[getattr(key.map_key, key.map_key.ListFields()[0][0].name)]
    if key is not None:
        while len(value) <= key.index:
            value.add()
        return value[key.index]
    value.SetInParent()
    return value


def _set_value(message: Message, field: Message, key: Message, chunk: bytes) -> None:
    """Sets a bytes or string field, or an element of a list of them, to a chunk."""
    value = chunk.decode() if field.type == _TYPES["string"] else chunk
    if key is None:
        setattr(message, field.name, value)
        return
    values = getattr(message, field.name)
    while len(values) <= key.index:
        values.append(type(value)())
    values[key.index] = value


@functools.cache
def message_class(name: str) -> type[Message]:
    """A message class of chunk.proto, which TensorFlow's Python package leaves out."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(
        name="tfplace/chunk.proto", package="tfplace.chunks", syntax="proto2"
    )
    messages: dict[str, Message] = {}
    for message, field, number, kind, label, type_name in table_rows(__file__):
        if message not in messages:
            messages[message] = file.message_type.add(name=message)
        messages[message].field.add(
            name=field,
            number=int(number),
            type=_TYPES[kind],
            label=3 if label == "repeated" else 1,
            type_name=f".tfplace.chunks.{type_name}" if type_name != "." else None,
        )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tfplace.chunks.{name}"))
