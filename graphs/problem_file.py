"""The .npz of a placement problem: exactly what the simulator saw.

The contract (`tfplace/docs/contract.md`), section 6, lists the arrays.
"""

import dataclasses
import math
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import psutil

from graphs.errors import ModelError
from graphs.executor_model import ExecutorModel
from graphs.host.whole_file import write_whole
from graphs.op_graph import IntArray, LongArray, OpGraph
from graphs.problem import Problem
from graphs.problem_arrays import ARRAYS, EXECUTOR_FIELDS, EXTRAS, checked_arrays


def write_problem(path: str | Path | IO[bytes], problem: Problem, device_of_op: IntArray) -> None:
    """Writes a problem and a placement of it as .npz, to exactly this path, whole or not at all.

    Args:
      device_of_op: i4[N] the best placement found.

    Raises:
      OutputError: it can't be written.
    """
    graph = problem.graph
    values: dict[str, object] = {
        name: getattr(graph, name, getattr(problem, name, None)) for name in {**ARRAYS, **EXTRAS}
    }
    values["placement"] = device_of_op
    arrays = {
        name: np.asarray(values[name], dtype=np.str_ if dtype == "U" else dtype)
        for name, (dtype, _) in {**ARRAYS, **EXTRAS}.items()
    }
    if problem.executor is not None:
        for name, field in EXECUTOR_FIELDS.items():
            if (array := getattr(problem.executor, field)) is not None:
                arrays[name] = array

    def write(file: IO[bytes]) -> None:
        np.savez_compressed(file, allow_pickle=False, **arrays)

    if isinstance(path, str | Path):  # numpy appends .npz to a name that doesn't end with it
        write_whole(path, write)
    else:
        write(path)


def arrays_as_they_stand(path: str) -> dict[str, np.ndarray]:
    """What of a problem's file means something, in its own order and unchecked.

    Raises:
      ModelError: no such file, or no .npz.
    """
    wanted = {**ARRAYS, **EXTRAS, **EXECUTOR_FIELDS}
    return read_archive(path, wanted, f"reading the problem {path}")


def read_problem(path: str) -> tuple[Problem, IntArray]:
    """Reads what `write_problem`, or another program after the contract, section 6, wrote.

    Tensors are sorted by producer and uses by (tensor, op); neither changes any makespan.

    Returns:
      The problem, and the placement i4[N].

    Raises:
      ModelError: no such file, no .npz, or an array is missing, misshapen or makes no sense.
      PlacementError: the placement names devices that do not exist.
    """
    return problem_of(path, arrays_as_they_stand(path))


def problem_of(path: str, raw: Mapping[str, np.ndarray]) -> tuple[Problem, IntArray]:
    """As `read_problem`, of a file's arrays as they stand, which stay as they are."""
    arrays = checked_arrays(path, raw)
    order = np.argsort(arrays["tensor_producer"], kind="stable")
    new_index = np.empty_like(order)
    new_index[order] = np.arange(len(order))
    values = {name: _as_field(name, array, order) for name, array in arrays.items()}
    shares = values["tensor_shares"]
    values["tensor_shares"] = np.where(shares < 0, -1, new_index[shares]).astype(np.int32)
    use_tensor = new_index[arrays["use_tensor"]].astype(np.int32)
    by_tensor = np.lexsort((arrays["use_op"], use_tensor))
    values |= {"use_tensor": use_tensor[by_tensor], "use_op": arrays["use_op"][by_tensor]}
    graph = OpGraph(**_fields_of(OpGraph, values))
    problem = Problem(graph, executor=_executor(arrays), **_fields_of(Problem, values))
    return problem, arrays["placement"]


def _as_field(name: str, array: np.ndarray, order: LongArray) -> Any:
    """An array as `OpGraph` or `Problem` has it: tensors in their new order, names as text."""
    dtype, dimensions = {**ARRAYS, **EXTRAS}.get(name, ("", ("",)))
    if not dimensions:
        return array.item()
    if dtype == "U":
        return array.tolist() if dimensions[0] == "N" else tuple(array.tolist())
    return array[order] if dimensions[0] == "T" else array


def _fields_of(kind: type[OpGraph] | type[Problem], values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        each.name: values[each.name] for each in dataclasses.fields(kind) if each.name in values
    }


def _executor(arrays: Mapping[str, np.ndarray]) -> ExecutorModel | None:
    if "send_seconds" not in arrays:
        return None
    fields: dict[str, Any] = {field: arrays.get(name) for name, field in EXECUTOR_FIELDS.items()}
    return ExecutorModel(**fields)


# The arrays of an .npz that somebody else wrote: nothing that it says of itself is believed.
#
# A header may claim more than the file holds, a small file may unpack to more than a machine holds,
# and numpy would take the memory first.

ENDING = ".npy"


def read_archive(path: str, wanted: Collection[str], doing: str) -> dict[str, np.ndarray]:
    """The wanted arrays that are in an .npz; pickles are refused.

    Args:
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
            num_bytes = sum(info.file_size for info in found.values())
            if num_bytes > (free := psutil.virtual_memory().available):
                raise ModelError(
                    f"{doing}: its arrays take {num_bytes:,} bytes, and this machine has {free:,} "
                    "free; wanted a problem that fits its memory: give a smaller one, or use a "
                    "larger machine"
                )
            return {name: _read(archive, info) for name, info in found.items()}
    except ModelError:
        raise
    except Exception as error:  # numpy, zipfile, zlib and tokenize each have their own
        raise ModelError(
            f"{doing}: wanted an .npz without pickles, as numpy.savez and --dump_problem write "
            f"it, but {error}"
        ) from error


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    """The array; ValueError where its header and what follows that differ in size."""
    with archive.open(info) as member:
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
    with archive.open(info) as member:
        return np.lib.format.read_array(member, allow_pickle=False)
