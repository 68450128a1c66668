"""Reads Riegeli files, the container in which TensorFlow keeps protos of more than 2 GiB.

Source: the Riegeli/records file format specification. Transposed chunks are not read, because
TensorFlow writes simple ones. Brotli, Zstandard and HighwayHash are taken from the TensorFlow
library, which exports their C functions. And reads the outermost fields of any serialized proto.
"""

import collections
import ctypes
import functools
import glob
import os
from collections.abc import Iterator

import graphs.late_tensorflow as tf
from graphs.errors import ModelError

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}


class CutOffError(ValueError):
    """The bytes end inside a field that began well."""


def outermost_fields(content: bytes) -> collections.Counter[tuple[int, int]]:
    """{(field number, wire type): how many fields}.

    Raises:
      CutOffError: a field is longer than what is left.
      ValueError: these bytes are no protocol buffer.
    """
    fields: collections.Counter[tuple[int, int]] = collections.Counter()
    position, size = 0, len(content)
    while position < size:
        start = position
        tag, position = varint(content, position)
        number, wire_type = tag >> 3, tag & 7
        if number == 0 or wire_type not in (VARINT, FIXED64, LENGTH, FIXED32):
            raise ValueError(f"byte {start} begins no field")
        if wire_type == VARINT:
            _, position = varint(content, position)
        elif wire_type == LENGTH:
            length, position = varint(content, position)
            position += length
        else:
            position += _FIXED_BYTES[wire_type]
        fields[number, wire_type] += 1
        if position > size:
            raise CutOffError(
                f"the field at byte {start} ends at byte {position}, the file at byte {size}"
            )
    return fields


def varint(content: bytes, position: int) -> tuple[int, int]:
    """The number of variable length at `position`, and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(content):
            raise CutOffError(f"the file ends at byte {len(content)}, inside a number")
        byte = content[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError(f"byte {position} ends a number of more than 64 bits")


BLOCK_BYTES = 1 << 16
BLOCK_HEADER_BYTES = 24
CHUNK_HEADER_BYTES = 40
USABLE_BYTES = BLOCK_BYTES - BLOCK_HEADER_BYTES
SIGNATURE = bytes.fromhex(
    "83af70d10d884a3f0000000000000000400000000000000091bac23c9287e1a9"
    "0000000000000000e19f13c0e9b1c3727300000000000000" + "00" * 8
)
_HASH_KEY = (0x2F696C6567656952, 0x0A7364726F636572) * 2
_SIMPLE, _IGNORED = ord("r"), b"smp"
_NONE, _BROTLI, _ZSTANDARD = 0, ord("b"), ord("z")


def read_records(content: bytes, path: str) -> dict[int, bytes]:
    """{position: record} of a file's content, in the order of the file.

    A record's position is that of its chunk plus the record's index in the chunk.

    Raises:
      ModelError: the content is damaged, cut off, or of a form that is not read here.
    """
    records: dict[int, bytes] = {}
    try:
        for begin, kind, num_records, size, payload in _chunks(content):
            if kind == _SIMPLE:
                for index, record in enumerate(_simple_records(payload, num_records, size)):
                    records[begin + index] = record
            elif kind not in _IGNORED:
                raise ValueError(f"a chunk of type {chr(kind)!r}, which is not supported")
    except (ValueError, IndexError) as error:
        raise ModelError(
            f"reading the chunked model {path!r}: found {error}; wanted Riegeli records as "
            "TensorFlow writes them; copy or save the model again"
        ) from error
    return records


def _chunks(content: bytes) -> Iterator[tuple[int, int, int, int, bytes]]:
    """Position, type, number of records, decoded size and data of each chunk."""
    starts = range(0, len(content), BLOCK_BYTES)
    stream = b"".join(content[s + BLOCK_HEADER_BYTES : s + BLOCK_BYTES] for s in starts)
    offset = 0
    while offset < len(stream):
        header = stream[offset : offset + CHUNK_HEADER_BYTES]
        if len(header) < CHUNK_HEADER_BYTES:
            raise ValueError("a chunk header that is cut off")
        if header[:8] != highway_hash(header[8:]):
            raise ValueError(f"a damaged chunk header at byte {_position(offset)}")
        size = int.from_bytes(header[8:16], "little")
        num_records = int.from_bytes(header[25:32], "little")
        end = offset + CHUNK_HEADER_BYTES + size
        data = stream[offset + CHUNK_HEADER_BYTES : end]
        if len(data) < size:
            raise ValueError(f"a chunk of {size} bytes of which {len(data)} are there")
        if header[16:24] != highway_hash(data):
            raise ValueError(f"a damaged chunk at byte {_position(offset)}")
        begin = _position(offset)
        yield begin, header[24], num_records, int.from_bytes(header[32:40], "little"), data
        # A chunk spans at least as many bytes as it has records, so that positions are unique.
        while _position(end) < begin + num_records:
            end += 1
        offset = end


def _position(offset: int) -> int:
    """Where in the file a byte lies that is at `offset` of the stream without block headers.

    A chunk at the start of a block begins before the block's header.
    """
    block, inside = divmod(offset, USABLE_BYTES)
    return block * BLOCK_BYTES + (BLOCK_HEADER_BYTES + inside if inside else 0)


def _simple_records(data: bytes, num_records: int, decoded_size: int) -> Iterator[bytes]:
    """The records of a simple chunk."""
    compression = data[0]
    size, start = varint(data, 1)
    sizes = _decompressed(data[start : start + size], compression)
    values = _decompressed(data[start + size :], compression)
    if len(values) != decoded_size:
        raise ValueError(f"{len(values)} bytes of records, where {decoded_size} were announced")
    position, begin = 0, 0
    for _ in range(num_records):
        length, position = varint(sizes, position)
        yield values[begin : begin + length]
        begin += length


def _decompressed(data: bytes, compression: int) -> bytes:
    """The bytes as they were before compression."""
    if compression == _NONE:
        return data
    size, start = varint(data, 0)
    compressed = data[start:]
    result = ctypes.create_string_buffer(max(size, 1))
    library = _library()
    if compression == _BROTLI:
        length = ctypes.c_size_t(size)
        decoder = library.BrotliDecoderDecompress
        decoder.restype = ctypes.c_int
        decoder.argtypes = [ctypes.c_size_t, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p]
        good = decoder(len(compressed), compressed, ctypes.byref(length), result) == 1
        written = length.value
    elif compression == _ZSTANDARD:
        decoder = library.ZSTD_decompress
        decoder.restype = ctypes.c_size_t
        decoder.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
        written = decoder(result, size, compressed, len(compressed))
        good = True
    else:
        raise ValueError(f"compression {chr(compression)!r}, which is not supported")
    if not good or written != size:
        raise ValueError("compressed data that does not unpack")
    return result.raw[:size]


def highway_hash(data: bytes) -> bytes:
    """The 8 bytes with which Riegeli guards `data`."""
    function = _library().HighwayHash64_Portable
    function.restype = ctypes.c_uint64
    function.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64]
    key = (ctypes.c_uint64 * 4)(*_HASH_KEY)
    return int(function(key, data, len(data))).to_bytes(8, "little")


@functools.cache
def _library() -> ctypes.CDLL:
    """TensorFlow's shared library, loaded already; ModelError: it lacks the functions needed."""
    for path in sorted(glob.glob(os.path.join(tf.sysconfig.get_lib(), "libtensorflow_framework*"))):
        library = ctypes.CDLL(path)
        if hasattr(library, "HighwayHash64_Portable") and hasattr(
            library, "BrotliDecoderDecompress"
        ):
            return library
    raise ModelError(
        f"reading a chunked model: TensorFlow {tf.__version__} has no Brotli and HighwayHash to "
        "read it with; save the model without experimental_image_format"
    )
