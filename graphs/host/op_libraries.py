"""Op libraries: what this process has loaded, its children load, too.

TensorFlow keeps no list of what `tf.load_op_library` has loaded, so the system is asked which
libraries that are linked against TensorFlow are in this process. Nothing that a model says is
ever loaded: a library is code that runs.
"""

import functools
import logging
import mmap
import os
import sys
from collections.abc import Iterable
from struct import error, iter_unpack, unpack_from

import graphs.late_tensorflow as tf
from graphs.errors import ModelError

VARIABLE = "TFPLACE_OP_LIBRARIES"
"""Names those that a child loads, to the child."""
_MAPPED = "/proc/self/maps"
_TENSORFLOW = b"libtensorflow"
_LOAD, _DYNAMIC = 1, 2  # kinds of an ELF file's segments
_NEEDED, _STRINGS = 1, 5  # tags in its dynamic segment


def load_op_libraries(paths: Iterable[str]) -> None:
    """Loads libraries into this process, and into the children that it starts from now on.

    Args:
      paths: of files; what is empty is left out.

    Raises:
      ModelError: one can't be loaded.
    """
    for path in map(os.path.abspath, filter(None, paths)):
        try:
            _load(path)
        except Exception as why:  # TensorFlow's own kinds, by what is wrong with the file
            raise ModelError(
                f"loading the op library {path!r}: {str(why).splitlines()[0]}; wanted a library "
                "of this TensorFlow's version, as for tf.load_op_library: check --op_library"
            ) from why


def load_named_op_libraries() -> None:
    """Loads, in a child, what its parent has loaded."""
    for path in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        try:
            _load(path)
        except Exception as why:  # the run that needs it says so; others don't need it
            logging.warning("loading the op library %s: %s", path, why)


def op_library_environment() -> dict[str, str]:
    """The variable that names this process's op libraries to a child."""
    return {VARIABLE: os.pathsep.join(_loaded())}


def _load(path: str) -> None:
    tf.load_op_library(path)


def _loaded() -> list[str]:
    """Files of all op libraries in this process."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None or not os.path.exists(_MAPPED):
        return []
    own = os.path.dirname(os.path.realpath(str(tensorflow.__file__))) + os.sep
    with open(_MAPPED, encoding="utf-8", errors="surrogateescape") as lines:
        mapped = {line.rstrip("\n").split(maxsplit=5)[-1] for line in lines if ".so" in line}
    return [path for path in sorted(mapped) if not path.startswith(own) and _is_linked(path)]


@functools.cache
def _is_linked(path: str) -> bool:
    """Whether an ELF file of 64 bits is linked against TensorFlow; False for any other file."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as elf:
            (first,), (size, count) = unpack_from("<Q", elf, 32), unpack_from("<HH", elf, 54)
            segments = [unpack_from("<IIQQQQ", elf, first + size * i) for i in range(count)]
            begin, length = next((s[2], s[5]) for s in segments if s[0] == _DYNAMIC)
            tags = list(iter_unpack("<qQ", elf[begin : begin + length]))
            at = next(value for tag, value in tags if tag == _STRINGS)
            at -= next(s[3] - s[2] for s in segments if s[0] == _LOAD and 0 <= at - s[3] < s[5])
            return any(
                elf[at + value : at + value + len(_TENSORFLOW)] == _TENSORFLOW
                for tag, value in tags
                if tag == _NEEDED
            )
    except (OSError, ValueError, error, StopIteration):  # it was removed, or is no library
        return False
