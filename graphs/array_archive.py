"""The arrays of an .npz that somebody else wrote: nothing that it says of itself is believed.

A header may claim more than the file holds, a small file may unpack to more than a machine holds,
and numpy would take the memory first.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import IO

import numpy as np
import psutil

from graphs.errors import ModelError

ENDING = ".npy"


def read_archive(path: str, wanted: Collection[str], doing: str) -> dict[str, np.ndarray]:
    """The wanted arrays that are in an .npz; pickles are refused.

    Args:
      path: the file.
      wanted: names of arrays; others are not read.
      doing: what an error's sentence begins with.

    Raises:
      ModelError: no such file, a folder, no .npz, damaged, or more than this machine holds.
    """
    if Path(path).exists() and not Path(path).is_file():
        kind = "a folder" if Path(path).is_dir() else "what is no regular file"
        raise ModelError(f"{doing}: found {kind}; wanted an .npz; check the path")
    if not Path(path).is_file():
        raise ModelError(f"{doing}: there is no such file; check the path")
    try:
        with zipfile.ZipFile(path) as archive:
            members = {
                info.filename.removesuffix(ENDING): info
                for info in archive.infolist()
                if info.filename.endswith(ENDING)
            }
            found = {name: info for name, info in members.items() if name in wanted}
            _require_memory(sum(info.file_size for info in found.values()), doing)
            return {name: _read(archive, info) for name, info in found.items()}
    except ModelError:
        raise
    except Exception as error:  # numpy, zipfile, zlib and tokenize each have their own
        raise ModelError(
            f"{doing}: wanted an .npz without pickles, as numpy.savez and --dump_problem write "
            f"it, but {error}"
        ) from error


def _require_memory(num_bytes: int, doing: str) -> None:
    free = psutil.virtual_memory().available
    if num_bytes > free:
        raise ModelError(
            f"{doing}: its arrays take {num_bytes:,} bytes, and this machine has {free:,} free; "
            "wanted a problem that fits its memory: give a smaller one, or use a larger machine"
        )


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(info) as member:
        _require_content(member, info)
    with archive.open(info) as member:
        return np.lib.format.read_array(member, allow_pickle=False)


def _require_content(member: IO[bytes], info: zipfile.ZipInfo) -> None:
    """Raises ValueError where a header and what follows it differ in size."""
    version = np.lib.format.read_magic(member)
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read_header is None:
        raise ValueError(f"{info.filename} is of format {version}, wanted 1.0 or 2.0")
    shape, _, dtype = read_header(member)
    if dtype.hasobject:
        raise ValueError(f"{info.filename} holds pickled objects")
    said, there = math.prod(shape) * dtype.itemsize, info.file_size - member.tell()
    if said != there or any(size < 0 for size in shape):
        raise ValueError(
            f"{info.filename} says that it is {dtype}{list(shape)}, {said:,} bytes, and holds "
            f"{there:,}"
        )
