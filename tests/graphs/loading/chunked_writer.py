"""Writes chunked SavedModels as TensorFlow's splitter does, which its Python package leaves out."""

import ctypes

from graphs.loading import riegeli
from graphs.loading.chunked_proto import message_class

_HEADER = riegeli.BLOCK_HEADER_BYTES


def write_chunked(path, records_of_chunk, fields, brotli=False):
    """Writes a .cpb file.

    Args:
      path: of the file.
      records_of_chunk: [[serialized message or bytes]]: the records of each Riegeli chunk.
      fields: [(field tags, index of the record)] after the base message, which is record 0; a
        tag is an int for a field, ("index", i) or ("key", name).
      brotli: whether to compress, as TensorFlow does.
    """
    writer = _Writer()
    metadata = message_class("ChunkMetadata")()
    metadata.message.chunk_index = 0
    for tags, record in fields:
        field = metadata.message.chunked_fields.add()
        field.message.chunk_index = record
        for tag in tags:
            index = field.field_tag.add()
            if isinstance(tag, int):
                index.field = tag
            elif tag[0] == "index":
                index.index = tag[1]
            else:
                index.map_key.s = tag[1]
    for records in records_of_chunk:
        begin = writer.add_chunk(records, brotli)
        for index in range(len(records)):
            metadata.chunks.add(type=1, offset=begin + index)
    writer.add_chunk([metadata.SerializeToString()], brotli)
    path.write_bytes(writer.content)


class _Writer:
    def __init__(self):
        self.content = riegeli.SIGNATURE

    def add_chunk(self, records, brotli):
        """Appends a simple chunk and returns its position."""
        sizes = b"".join(varint(len(record)) for record in records)
        values = b"".join(records)
        if brotli:
            packed = varint(len(sizes)) + _brotli(sizes)
            data = b"b" + varint(len(packed)) + packed + varint(len(values)) + _brotli(values)
        else:
            data = b"\0" + varint(len(sizes)) + sizes + values
        header = (
            len(data).to_bytes(8, "little")
            + riegeli.highway_hash(data)
            + b"r"
            + len(records).to_bytes(7, "little")
            + len(values).to_bytes(8, "little")
        )
        return self._append(riegeli.highway_hash(header) + header + data)

    def _append(self, chunk):
        begin = len(self.content)
        end = begin
        for _ in range(len(chunk)):  # hand-sized files: one byte at a time is plain to follow
            end += 1 if end % riegeli.BLOCK_BYTES else _HEADER + 1
        rest = chunk
        while rest:
            if len(self.content) % riegeli.BLOCK_BYTES == 0:
                block = len(self.content)
                distances = (block - begin).to_bytes(8, "little") + (end - block).to_bytes(
                    8, "little"
                )
                self.content += riegeli.highway_hash(distances) + distances
            room = riegeli.BLOCK_BYTES - len(self.content) % riegeli.BLOCK_BYTES
            self.content += rest[:room]
            rest = rest[room:]
        return begin


def varint(value):
    """A number as protocol buffers and Riegeli write it."""
    parts = []
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _brotli(data):
    size = ctypes.c_size_t(len(data) + 1024)
    result = ctypes.create_string_buffer(size.value)
    encode = riegeli._library().BrotliEncoderCompress
    encode.argtypes = (
        [ctypes.c_int] * 3 + [ctypes.c_size_t, ctypes.c_char_p] + [ctypes.c_void_p] * 2
    )
    assert encode(6, 22, 0, len(data), data, ctypes.byref(size), result) == 1
    return result.raw[: size.value]
