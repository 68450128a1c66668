"""Reads the outermost fields of a serialized protocol buffer whose type is not known.

Source: https://protobuf.dev/programming-guides/encoding/.
"""

import collections

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
