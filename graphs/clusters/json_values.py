"""Values of a cluster file, read strictly: errors say where, what was found and what wanted."""

import collections
import json
import math
import re
from collections.abc import Collection, Sequence

from graphs.errors import ClusterError, TfplaceError
from graphs.host.did_you_mean import did_you_mean
from graphs.protos import Json, JsonObject

_UNITS = {"": 1, "B": 1} | {
    f"{prefix}{suffix}": base ** (power + 1)
    for suffix, base in (("B", 1000), ("iB", 1024))
    for power, prefix in enumerate("KMGTP")
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def parse_bytes(where: str, value: Json, error: type[TfplaceError] = ClusterError) -> int:
    """Bytes of "12GiB", "16GB", "512 MiB" or an integer; decimals like "1.5GiB" round down.

    Raises:
      error: it is none of these, or not positive.
    """
    size: float | None = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        size = value if 1 <= value < 2**63 else None
    elif isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        number, unit = match.groups()
        scale = {key.lower(): factor for key, factor in _UNITS.items()}.get(unit.lower())
        size = None if scale is None else float(number) * scale
    if size is None or not 1 <= size < 2**63:
        raise error(
            f"{where} is {value!r}; wanted a positive size such as 17179869184, '16GiB' or '16GB'"
        )
    return int(size)


def require_keys(
    where: str, value: Json, known: Collection[str], required: Collection[str]
) -> None:
    """Raises ClusterError unless it is an object with all required keys and only known ones."""
    if not isinstance(value, dict):
        raise ClusterError(f"{where} is {shown(value)}; wanted a JSON object")
    for key in value:
        if key not in known:
            guess = did_you_mean(key, known) or f"; known are {', '.join(known)}"
            raise ClusterError(f"{where} has an unknown key {key!r}{guess}")
    for key in required:
        if key not in value:
            raise ClusterError(f"{where} has no {key!r}, which is required")


def text_of(where: str, value: JsonObject, key: str, default: str) -> str:
    """The string under a key."""
    text = value.get(key, default)
    if not isinstance(text, str):
        raise ClusterError(f"{where} has {key!r} {shown(text)}; wanted a string")
    return text


def number_of(where: str, value: JsonObject, key: str, default: float, zero: bool = False) -> float:
    """The finite number under a key, above 0, or at least 0 where `zero` says so."""
    given = value.get(key, default)
    wanted = "a number of at least 0" if zero else "a number above 0"
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ClusterError(f"{where} has {key!r} {shown(given)}; wanted {wanted}")
    try:
        number = float(given)
    except OverflowError:
        raise ClusterError(f"{where} has a {key!r} that is too large; wanted {wanted}") from None
    if not math.isfinite(number) or number < 0 or (number == 0 and not zero):
        raise ClusterError(f"{where} has {key!r} {given}; wanted {wanted}")
    return number


def count_of(where: str, value: JsonObject, key: str, default: int) -> int:
    """The whole number above 0 under a key."""
    number = number_of(where, value, key, default)
    if number != int(number) or number >= 2**31:
        raise ClusterError(f"{where} has {key!r} {number:g}; wanted a whole number above 0")
    return int(number)


def shown(value: Json) -> str:
    """A value as JSON, short."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def unique_keys(pairs: Sequence[tuple[str, Json]]) -> dict[str, Json]:
    """For json.loads: an object in which no key stands twice."""
    for key, times in collections.Counter(key for key, _ in pairs).items():
        if times > 1:
            raise ClusterError(f"key {key!r} stands twice in one object")
    return dict(pairs)
