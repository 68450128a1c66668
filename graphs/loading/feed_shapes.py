"""What a run is fed, with every dimension known.

The model declares a dimension, or the user gives it, or it is guessed; guesses are reported.
"""

import copy
import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from graphs import op_types
from graphs.errors import FeedError, FetchError
from graphs.graph_view import GraphView
from graphs.host.did_you_mean import nearest
from graphs.loading.load_options import GuessedSizes, LoadOptions
from graphs.names import op_of, with_index
from graphs.protos import GraphDef, NodeDef, Shape, dtype_name, is_open, shape_of, shape_proto
from graphs.source_model import Signature, TensorSpec

_TAKEN = "unknown, taken as"

# Before this version of GraphDefs an empty shape of a Placeholder meant an unknown one.
_EMPTY_SHAPE_IS_SCALAR_SINCE = 24
# These ops can't take a scalar.
_WANT_RANK = frozenset(
    {"MatMul", "BatchMatMul", "BatchMatMulV2", "Conv1D", "Conv2D", "Conv3D", "MaxPool", "AvgPool"}
)


@dataclasses.dataclass(frozen=True)
class Feeds:
    """The inputs of a run.

    Attributes:
      specs: what a run is fed; shapes are complete.
      guessed: a sentence about each dimension that neither the model nor the user gives.
    """

    specs: tuple[TensorSpec, ...]
    guessed: tuple[str, ...]


def find_feeds(
    view: GraphView,
    fetches: Sequence[str],
    signature: Signature | None,
    all_signatures: Mapping[str, Signature],
    options: LoadOptions,
) -> Feeds:
    """The placeholders and signature inputs that `fetches` need, with complete shapes.

    Raises:
      FetchError: --input_shape names no input.
      FeedError: a given shape contradicts the declared one, or a rank can't be guessed.
    """
    from_signature = dict(_signature_inputs([signature] if signature else []))
    reached = view.ancestors(fetches, {op_of(tensor) for tensor in from_signature})
    exact = {**dict(_signature_inputs(all_signatures.values())), **from_signature}
    producer, declared = view.graph_def.versions.producer, list[TensorSpec]()
    for name, node in view.nodes.items():
        if name not in reached:
            continue
        tensors = [t for t in from_signature if op_of(t) == name]
        if not tensors and node.op in op_types.MUST_BE_FED:
            tensors = [f"{name}:0"]
        for tensor in tensors:
            own = _placeholder_spec(tensor, node, producer)
            declared.append(_more_exact(own, exact.get(tensor)))  # by signatures
    told = _told_shapes(declared, signature, all_signatures, options)
    specs, guessed = [], []
    for spec in declared:
        shape, sentences = _completed(view, spec, told.get(spec.tensor), options)
        specs.append(dataclasses.replace(spec, shape=shape))
        guessed.extend(sentences)
    if options.batch_size is not None:
        _check_batch(declared, specs, options.batch_size)
    return Feeds(tuple(specs), tuple(guessed))


def _signature_inputs(signatures: Iterable[Signature]) -> Iterable[tuple[str, TensorSpec]]:
    for signature in signatures:
        for spec in signature.inputs.values():
            yield with_index(spec.tensor), spec


def _placeholder_spec(tensor: str, node: NodeDef, producer: int) -> TensorSpec | None:
    """What a placeholder in a GraphDef of version `producer` declares; None for any other op."""
    if node.op not in op_types.PLACEHOLDERS:
        return None
    # An attribute that has its default, an unknown rank, may have been left out of the file.
    shape = shape_of(node.attr["shape"].shape) if "shape" in node.attr else None
    if not shape and producer < _EMPTY_SHAPE_IS_SCALAR_SINCE:
        shape = None
    return TensorSpec(tensor, dtype_name(node.attr["dtype"].type, f"input {node.name!r}"), shape)


def _more_exact(placeholder: TensorSpec | None, signature: TensorSpec | None) -> TensorSpec:
    """What a placeholder declares, with what a signature knows of its unknown dimensions."""
    if placeholder is None or signature is None:
        spec = placeholder or signature
        assert spec is not None  # a fed tensor is a placeholder's or a signature's
        return dataclasses.replace(spec, tensor=with_index(spec.tensor))
    if placeholder.shape is None or signature.shape is None:
        return dataclasses.replace(placeholder, shape=placeholder.shape or signature.shape)
    if len(placeholder.shape) != len(signature.shape):
        return placeholder
    both = zip(placeholder.shape, signature.shape, strict=True)
    return dataclasses.replace(placeholder, shape=tuple(p if p >= 0 else s for p, s in both))


def names_of_inputs(
    specs: Iterable[TensorSpec],
    signature: Signature | None,
    all_signatures: Mapping[str, Signature],
) -> dict[str, str]:
    """{name: tensor}: an input's names are its op, its tensor, and its argument in a signature.

    Args:
      signature: the run's own, if it has one; its arguments go before those of others.
    """
    known: dict[str, str] = {}
    for candidate in [*all_signatures.values(), *([signature] if signature else [])]:
        known.update({name: with_index(spec.tensor) for name, spec in candidate.inputs.items()})
    for spec in specs:
        known.update({spec.tensor: spec.tensor, op_of(spec.tensor): spec.tensor})
    return known


def _told_shapes(
    declared: Sequence[TensorSpec],
    signature: Signature | None,
    all_signatures: Mapping[str, Signature],
    options: LoadOptions,
) -> dict[str, tuple[int, ...]]:
    """{tensor: shape} from --input_shape, where an input may be named by a signature's argument.

    The arrays that will be fed say shapes, too. One that contradicts the model is passed over
    here; read_feeds reports it.
    """
    known = names_of_inputs(declared, signature, all_signatures)
    fed = {spec.tensor for spec in declared}
    told = {}
    shape_of_fed = {known[name]: s for name, s in options.fed_shape.items() if name in known}
    for spec in declared:
        shape = shape_of_fed.get(with_index(spec.tensor))
        if shape is not None and _fits(spec.shape, shape):
            told[spec.tensor] = tuple(shape)
    for name, shape in options.input_shape.items():
        if known.get(name) not in fed:
            names = [op_of(spec.tensor) for spec in declared]
            raise FetchError(
                f"reading --input_shape {name}: the run has no input {name!r}, it has "
                f"{', '.join(names) or 'none'}{nearest(name, names)}"
            )
        told[known[name]] = tuple(shape)
    return told


def _completed(
    view: GraphView, spec: TensorSpec, told: tuple[int, ...] | None, options: LoadOptions
) -> tuple[tuple[int, ...], list[str]]:
    """The shape of an input without unknown dimensions, and a sentence about each guess in it."""
    if told is not None:
        if not _fits(spec.shape, told):
            raise FeedError(
                f"reading --input_shape {op_of(spec.tensor)}={','.join(map(str, told))}: the model "
                f"declares {_readable(spec.shape)}; give a shape that fits it"
            )
        return told, []
    name = op_of(spec.tensor)
    if spec.shape is None:
        wanting = [u for u in view.users[name] if view.nodes[u].op in _WANT_RANK]
        if wanting:
            raise FeedError(
                f"shaping the input {name!r}: the model declares no rank and {wanting[0]!r} "
                f"({view.nodes[wanting[0]].op}) needs one; give it with --input_shape {name}=..."
            )
        return (), [f"input {name}: rank {_TAKEN} a scalar"]
    shape, guessed = list(spec.shape), []
    for position, size in enumerate(shape):
        if size >= 0:
            continue
        if position == 0 and options.batch_size is not None:
            shape[0] = options.batch_size
            continue
        shape[position] = _guess(spec.shape, position, options.guess)
        guessed.append(f"input {name}: dimension {position} {_TAKEN} {shape[position]}")
    return tuple(shape), guessed


def sizes_guessed(guessed: Iterable[str]) -> list[str]:
    """Of sentences on what was guessed, those on the sizes of inputs."""
    return [sentence for sentence in guessed if _TAKEN in sentence]


def _guess(shape: tuple[int, ...], position: int, guess: GuessedSizes) -> int:
    if position == 0:
        return guess.batch
    is_image = len(shape) == 4 and shape[3] in (1, 3, 4) and position in (1, 2)
    return guess.image if is_image else guess.other


def _fits(declared: Shape, told: tuple[int, ...]) -> bool:
    """Whether a shape agrees with the one that the model declares."""
    if declared is None:
        return True
    return len(told) == len(declared) and all(
        d in (-1, t) for d, t in zip(declared, told, strict=True)
    )


def _check_batch(
    declared: Sequence[TensorSpec], specs: Sequence[TensorSpec], batch_size: int
) -> None:
    if any(spec.shape and spec.shape[0] == batch_size for spec in specs):
        return
    both = zip(declared, specs, strict=True)
    if told := [spec for d, spec in both if d.shape and d.shape[0] < 0 and spec.shape]:
        sizes = ", ".join(f"{op_of(spec.tensor)} {_readable(spec.shape)}" for spec in told)
        raise FeedError(
            f"filling in --batch_size {batch_size}: --feed or --input_shape says otherwise, "
            f"{sizes}; leave one of the flags out"
        )
    fixed = [f"{op_of(spec.tensor)} {_readable(spec.shape)}" for spec in declared]
    has_open = any(is_open(spec.shape) for spec in declared)
    raise FeedError(
        f"filling in --batch_size {batch_size}: no input has an unknown leading dimension, they "
        f"are {', '.join(fixed) or 'none'}; leave the flag out"
        + (", or fill others with --input_shape NAME=2,3" if has_open else "")
    )


def _readable(shape: Shape) -> str:
    """A shape as it is shown to a person, "[?,8]"."""
    if shape is None:
        return "(unknown rank)"
    return "[" + ",".join("?" if size < 0 else str(size) for size in shape) + "]"


def write_shapes(graph_def: GraphDef, specs: Sequence[TensorSpec]) -> GraphDef:
    """A copy of `graph_def` whose fed placeholders have the shapes of `specs`."""
    result = copy.deepcopy(graph_def)
    shapes = {op_of(spec.tensor): spec.shape for spec in specs}
    for node in result.node:
        shape = shapes.get(node.name)
        if shape is None or node.op not in op_types.PLACEHOLDERS:
            continue
        node.attr["shape"].shape.CopyFrom(shape_proto(shape))
        if "_output_shapes" in node.attr:
            del node.attr["_output_shapes"]
    return result
