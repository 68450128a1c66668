"""The arrays that a run is fed with: made up so that the run works, or read from a file."""

import contextlib
import dataclasses
import math
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import psutil

import graphs.late_tensorflow as tf
from graphs.building.flatten import flatten
from graphs.building.shapes import TensorProperties, infer
from graphs.errors import FeedError
from graphs.flat_graph import FlatGraph
from graphs.host.did_you_mean import did_you_mean_file, nearest
from graphs.host.whole_file import is_device
from graphs.loading.composite_feeds import made_consistent
from graphs.loading.index_ranges import ElementFlow, IndexRanges
from graphs.loading.number_forms import INTEGER_LIMIT, REAL, WHOLE, Form
from graphs.loading.settled_feeds import settled
from graphs.loading.string_feeds import MakeString, StringContents
from graphs.names import op_of
from graphs.protos import GraphDef
from graphs.source_model import TensorSpec

FeedArrays = dict[str, np.ndarray]
FeedsGiven = str | Mapping[str, np.ndarray]
"""What a user gives to feed: the path of an .npz, or {input: array}."""

MAX_ELEMENTS = 2**28
"""Most elements of one made up input; its random numbers take 2 GiB while it is made."""
_BYTES_WHILE_MADE = 24
"""Of an element: the random number, what is made of it, and a copy for the run."""
MAX_STRINGS = 2**22
"""Most elements of one made up input of strings, each of which is a Python object."""

# Floats too: Keras declares the ids that an Embedding takes as floats.
_MAY_INDEX = ("int", "uint", "float", "bfloat")


def generate_feeds(
    graph_def: GraphDef, feeds: Sequence[TensorSpec], fetches: Sequence[str], seed: int
) -> FeedArrays:
    """Random arrays that a run can be fed with, the same for the same seed.

    - Floats and complex numbers are standard normal, or as the op that reads them wants them:
      positive, probabilities, positive definite. Bools are true half of the time.
    - Integers lie in [0, limit). The limit is the size of what they index (rows of an embedding
      table, classes of a loss, the depth of a one-hot), else INTEGER_LIMIT. So do floats that are
      cast to an index. Lengths are at most the size of what they measure, the ids of segments are
      sorted, and what is itself a size is small.
    - Strings are what the run decodes: serialized examples with the features that it parses, or
      small pictures. Other strings are decimal numbers below INTEGER_LIMIT.
    - Components of sparse and ragged tensors fit together.

    Args:
      graph_def: the run graph; its calls may be open or not.
      feeds: what is fed; shapes complete.
      fetches: what the run asks for.
      seed: an array depends on it and on its tensor's name alone.

    Returns:
      {tensor "op:i": array of its dtype and shape}.

    Raises:
      FeedError: a dtype that can't be made up, such as a resource.
    """
    for spec in feeds:
        _require_complete(spec)
    if not any(spec.dtype.startswith(("bool", "string", *_MAY_INDEX)) for spec in feeds):
        return {spec.tensor: _random(spec, _Hints(), seed) for spec in feeds}
    flat = flatten(graph_def, feeds, fetches)
    return feeds_of_opened(flat, infer(flat), feeds, seed)


def feeds_of_opened(
    flat: FlatGraph, properties: TensorProperties, feeds: Sequence[TensorSpec], seed: int
) -> FeedArrays:
    """Does what `generate_feeds` does, for a run that is open and whose shapes are known.

    Raises:
      FeedError: a dtype that can't be made up, such as a resource.
    """
    flow = ElementFlow(flat, properties)
    ranges, contents = IndexRanges(flow), StringContents(flow)
    hints = _Hints(
        {s.tensor: ranges.form(s.tensor) for s in feeds if s.dtype.startswith(_MAY_INDEX)},
        {s.tensor: contents.maker(s.tensor) for s in feeds if s.dtype == "string"},
    )
    arrays = {spec.tensor: _random(spec, hints, seed) for spec in feeds}
    arrays = made_consistent(flat.graph_def, properties, feeds, arrays)

    def of_form(spec: TensorSpec, form: Form) -> np.ndarray:
        return _random(spec, _Hints({spec.tensor: form}), seed)

    return settled(flat, feeds, arrays, of_form)


@dataclasses.dataclass(frozen=True)
class _Hints:
    """What the run's graph says about the values of its inputs.

    Attributes:
      form_of: {tensor: what its numbers are like}.
      maker_of: {tensor: what makes its strings}; None where any string will do.
    """

    form_of: Mapping[str, Form] = dataclasses.field(default_factory=dict)
    maker_of: Mapping[str, MakeString | None] = dataclasses.field(default_factory=dict)


def _require_complete(spec: TensorSpec) -> tuple[int, ...]:
    shape = spec.shape
    if shape is None or any(size < 0 for size in shape):
        raise FeedError(
            f"making up the input {spec.tensor!r}: its shape {shape} is not complete; give it "
            f"with --input_shape {op_of(spec.tensor)}=..."
        )
    return shape


def _random(spec: TensorSpec, hints: _Hints, seed: int) -> np.ndarray:
    """The array of one input."""
    shape, form = _require_complete(spec), hints.form_of.get(spec.tensor, Form())
    most = MAX_STRINGS if spec.dtype == "string" else MAX_ELEMENTS
    most = min(most, psutil.virtual_memory().available // _BYTES_WHILE_MADE)
    if math.prod(shape) > most:
        raise FeedError(
            f"making up the input {spec.tensor!r}: its shape {list(shape)} has {math.prod(shape)} "
            f"elements, more than {most}, which fit here; give a smaller one with --batch_size or "
            f"--input_shape {op_of(spec.tensor)}=..., or its array with --feed"
        )
    rng = np.random.default_rng([seed, zlib.crc32(spec.tensor.encode())])
    dtype = tf.as_dtype(spec.dtype)
    if dtype == tf.bool:
        return np.asarray(rng.random(shape) < 0.5)
    maker = hints.maker_of.get(spec.tensor)
    if maker is not None:
        made = np.empty(shape, object)
        for index in np.ndindex(*shape):
            made[index] = maker(rng)
        return made
    if dtype == tf.string:
        return np.asarray(rng.integers(0, INTEGER_LIMIT, shape)).astype(np.bytes_).astype(object)
    if dtype.is_integer or (dtype.is_floating and form.limit is not None):
        # Quantized and narrow integers can hold less than the limit.
        top = min(form.limit or INTEGER_LIMIT, int(dtype.max) + 1)
        return WHOLE[form.name](top, shape, rng).astype(dtype.as_numpy_dtype)
    if dtype.is_complex:
        values = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
        return np.asarray(values).astype(dtype.as_numpy_dtype)
    if dtype.is_floating:
        return REAL[form.name](shape, rng).astype(dtype.as_numpy_dtype)
    raise FeedError(
        f"making up the input {spec.tensor!r}: a {spec.dtype} has no values to make up; choose "
        "another run with --fetch or --signature, or give its arrays with --feed"
    )


def read_feeds(
    given: FeedsGiven,
    feeds: Sequence[TensorSpec],
    names: Mapping[str, str] | None = None,
    unread: Collection[str] = (),
) -> FeedArrays:
    """The inputs that a user gives, one array per feed, named "op", "op:i" or as `names` says.

    Args:
      given: the path of an .npz, or {name: array}.
      feeds: what is fed; shapes complete.
      names: {name: tensor}, as of a signature's arguments.
      unread: names that may be given, too: of arguments that nothing in the run reads.

    Returns:
      {tensor "op:i": array}, in the order of `feeds`.

    Raises:
      FeedError: no such file, no .npz, or arrays that are missing, unknown, or of another dtype
        or shape.
    """
    arrays, path = given_arrays(given), "the example" if isinstance(given, Mapping) else given
    shapes = given_shapes(arrays)
    known = {name: spec for spec in feeds for name in (spec.tensor, op_of(spec.tensor))}
    of_tensor = {spec.tensor: spec for spec in feeds}
    more = {name: of_tensor[t] for name, t in (names or {}).items() if t in of_tensor}
    known = more | known
    read: FeedArrays = {}
    for name in arrays:
        spec = known.get(name)
        if spec is None and name in unread:
            continue
        if spec is None:
            raise FeedError(
                f"reading inputs from {path!r}: the run has no input {name!r}, it has "
                f"{_names(feeds)}{nearest(name, [op_of(s.tensor) for s in feeds])}"
            )
        if spec.shape is not None and shapes[name] != spec.shape:
            raise FeedError(
                f"reading inputs from {path!r}: {spec.tensor!r} has shape {list(shapes[name])}, "
                f"wanted {list(spec.shape)}; give the shape with --batch_size or --input_shape, or "
                "change the array"
            )
        read[spec.tensor] = _checked(path, spec, arrays[name])
    missing = [spec for spec in feeds if spec.tensor not in read]
    if missing:
        raise FeedError(
            f"reading inputs from {path!r}: found no array for {_names(missing)}; "
            "add one for each input of the run"
        )
    return {spec.tensor: read[spec.tensor] for spec in feeds}


class _Archive(Mapping[str, np.ndarray]):
    """The arrays of an .npz, each read when it is asked for: a small file may unpack to gigabytes.

    Attributes:
      shapes: {name: shape}, as the arrays' headers say.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        with self._read() as archive:
            self.shapes = {name: self._shape(archive, name) for name in archive.files}

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def __getitem__(self, name: str) -> np.ndarray:
        with self._read() as archive:
            return np.asarray(archive[name])

    @staticmethod
    def _shape(archive: Any, name: str) -> tuple[int, ...]:
        file = name if name in archive.zip.namelist() else f"{name}.npy"
        with archive.zip.open(file) as member:
            version, readers = np.lib.format.read_magic(member), np.lib.format
            is_first = version == (1, 0)
            read = readers.read_array_header_1_0 if is_first else readers.read_array_header_2_0
            return tuple(read(member)[0])

    @contextlib.contextmanager
    def _read(self) -> Iterator[np.lib.npyio.NpzFile]:
        path = self._path
        try:
            if is_device(path):  # in which zipfile never comes to an end
                raise ValueError("it is a device")
            # Not np.load: it takes what is no archive for a pickle, and tells how to load that.
            with (
                open(path, "rb") as file,
                np.lib.npyio.NpzFile(file, allow_pickle=False) as archive,
            ):
                yield archive
        except FileNotFoundError as error:
            raise FeedError(
                f"reading inputs from {path!r}: there is no such file; check the path"
                f"{did_you_mean_file(path)}"
            ) from error
        except Exception as error:  # numpy, zipfile and zlib each have their own
            raise FeedError(
                f"reading inputs from {path!r}: {error}; wanted an .npz of plain arrays, "
                "write it with numpy.savez"
            ) from error


def given_arrays(given: FeedsGiven) -> Mapping[str, np.ndarray]:
    """{name: array} of inputs that a user gives; one of a file is read when it is asked for.

    Raises:
      FeedError: no such file, or no .npz.
    """
    return given if isinstance(given, Mapping) else _Archive(given)


def given_shapes(given: FeedsGiven) -> Mapping[str, tuple[int, ...]]:
    """{name: shape} of the same; raises as `given_arrays`."""
    arrays = given_arrays(given)
    if isinstance(arrays, _Archive):
        return arrays.shapes
    return {name: array.shape for name, array in arrays.items()}


def _checked(path: str, spec: TensorSpec, array: np.ndarray) -> np.ndarray:
    """The array in its feed's dtype, with numpy's strings as TensorFlow takes them."""
    wanted = tf.as_dtype(spec.dtype)
    if wanted == tf.string and array.dtype.kind in "SU":
        return array.astype(object)
    if wanted == tf.bfloat16 and array.dtype == np.dtype("V2"):
        return array.view(wanted.as_numpy_dtype)  # numpy saves bfloat16 as two bytes of anything
    if array.dtype != wanted.as_numpy_dtype:
        raise FeedError(
            f"reading inputs from {path!r}: {spec.tensor!r} is {array.dtype}, wanted "
            f"{spec.dtype}; convert it with .astype({spec.dtype!r})"
        )
    return array


def _names(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(op_of(spec.tensor) for spec in specs) or "none"
