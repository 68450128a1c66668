"""Small graphs that each exercise one thing: dispatch, ops, transfers, or several at once.

Whatever they compute ends in an assignment to a variable: Grappler removes what nothing needs, and
replaces a transfer by a control edge where only the order matters.
"""

import contextlib
import dataclasses
import math
from collections.abc import Sequence

import tensorflow as tf

from graphs.protos import GraphDef, Operation, Tensor
from graphs.source_model import Initialization
from tfplace.measurement.training_run import TrainingRun

_FLOAT_BYTES = 4
_ROW_ELEMENTS = 1 << 20
_DONE = "done"

# The size of vectors whose element-wise ops go through the memory that cores share.
STREAM_BYTES = 1 << 24

# How long a source's chain is beside its target's, so that what the target does decides.
_PACING_SHARE = 0.7


@dataclasses.dataclass(frozen=True)
class Probe:
    """A graph that exercises one thing."""

    graph_def: GraphDef  # with a device on each op
    run: TrainingRun  # one step of it


@dataclasses.dataclass(frozen=True)
class TransferProbe:
    """Equal transfers from one device to another."""

    source: str  # a device's name
    target: str  # a device's name
    num_bytes: int  # of each
    count: int  # how many


def step_probe(devices: Sequence[str], num_fetches: int = 0) -> Probe:
    """A step in which every device does next to nothing, without transfers between them.

    Args:
      num_fetches: 1 to fetch one element from the first, else 0.
    """
    drawing = _Drawing()
    values = [drawing.read(device, 1) for device in devices]
    ends = [drawing.keep(d, value) for d, value in zip(devices, values, strict=True)]
    return drawing.probe(devices[0], ends, values[:num_fetches])


def op_chains(device: str, length: int, count: int) -> Probe:
    """`count` independent chains of `length` ops on 1 element each."""
    drawing = _Drawing()
    most = drawing.read(device, 1)
    ends = []
    for _ in range(count):
        value = drawing.read(device, 1)  # its own: Grappler merges equal chains
        value = _min_max_chain(drawing, device, value, most, length)
        ends.append(drawing.keep(device, value))
    return drawing.probe(device, ends)


def products_on(devices: Sequence[str], side: int, depth: int) -> Probe:
    """A chain of `depth` products of side x side matrices for each device that is named.

    A device that is named k times has k chains, independent of each other.
    """
    drawing = _Drawing()
    ends = [_product_chain(drawing, device, side, depth)[1] for device in devices]
    return drawing.probe(devices[0], ends)


def streams_on(devices: Sequence[str], num_bytes: int, depth: int) -> Probe:
    """A chain of `depth` element-wise ops on two vectors of `num_bytes` on each device."""
    drawing = _Drawing()
    ends = []
    for device in devices:
        value, most = (drawing.read(device, _elements(num_bytes)) for _ in range(2))
        value = _min_max_chain(drawing, device, value, most, depth)
        ends.append(drawing.keep(device, drawing.first_element(device, value)))
    return drawing.probe(devices[0], ends)


def held_at_once(device: str, num_bytes: int) -> Probe:
    """One tensor of `num_bytes`, which are not written to; a step fails where they aren't there."""
    drawing = _Drawing()
    with drawing.on(device):
        rows = [math.ceil(num_bytes / (_ROW_ELEMENTS * _FLOAT_BYTES)), _ROW_ELEMENTS]
        table = tf.raw_ops.Empty(shape=rows, dtype=tf.float32)
        first = tf.raw_ops.Slice(input=table, begin=[0, 0], size=[1, 1])
        value = tf.raw_ops.Reshape(tensor=first, shape=[1])
    return drawing.probe(device, [drawing.keep(device, value)])


def ping_pong(source: str, target: str, num_bytes: int, num_hops: int) -> Probe:
    """A tensor goes to `target`, whereupon one element comes back, `num_hops` times in turn."""
    drawing = _Drawing()
    elements = _elements(num_bytes)
    handle = drawing.variable(source, elements)
    back: list[Operation] = []
    for _ in range(num_hops):
        there = drawing.first_element(target, drawing.read_again(source, handle, back))
        back = [drawing.keep(source, there)]
    return drawing.probe(source, back)


def transfers_at_once(transfers: Sequence[TransferProbe]) -> Probe:
    """Transfers of which none waits for another."""
    drawing = _Drawing()
    ends = [end for transfer in transfers for end in _send(drawing, transfer)]
    return drawing.probe(transfers[0].target, ends)


def products_beside_transfers(
    device: str, side: int, depth: int, transfers: TransferProbe
) -> Probe:
    """A chain of products on one end of a link while transfers go over it, evenly spread.

    Each transfer is released by a product of the source. In a training step, too, transfers come
    one by one, and each wakes its threads anew, while of a burst many are handled at once. Where
    the device is the target, the source has a shorter chain, which is done before the target's own.
    """
    drawing = _Drawing()
    source, target = transfers.source, transfers.target
    handle = drawing.variable(source, _elements(transfers.num_bytes))
    pacing = depth if device == source else max(round(_PACING_SHARE * depth), 1)
    products, end = _product_chain(drawing, source, side, pacing)
    ends = [end]
    for number in range(transfers.count):
        after = products[number * pacing // transfers.count]
        sent = drawing.read_again(source, handle, [after])
        ends.append(drawing.keep(target, drawing.first_element(target, sent)))
    if device == target:
        ends.append(_product_chain(drawing, target, side, depth)[1])
    return drawing.probe(device, ends)


def _send(drawing: "_Drawing", transfers: TransferProbe) -> list[Operation]:
    """Adds the transfers; returns the ops that run where and when the tensors have arrived."""
    handle = drawing.variable(transfers.source, _elements(transfers.num_bytes))
    sent = [drawing.read_again(transfers.source, handle, ()) for _ in range(transfers.count)]
    target = transfers.target
    return [drawing.keep(target, drawing.first_element(target, tensor)) for tensor in sent]


def _product_chain(
    drawing: "_Drawing", device: str, side: int, depth: int
) -> tuple[list[Tensor], Operation]:
    """The products in turn, and the op at their end."""
    factor = drawing.read(device, side * side, 1.0 / side)  # products stay as they are
    products = []
    with drawing.on(device):
        factor = tf.raw_ops.Reshape(tensor=factor, shape=[side, side])
        value = factor
        for _ in range(depth):
            value = tf.raw_ops.MatMul(a=value, b=factor)
            products.append(value)
        value = tf.raw_ops.Reshape(tensor=value, shape=[side * side])
    return products, drawing.keep(device, drawing.first_element(device, value))


def _min_max_chain(
    drawing: "_Drawing", device: str, value: Tensor, most: Tensor, length: int
) -> Tensor:
    with drawing.on(device):
        for position in range(length):  # in turn: Grappler merges equal types
            kind = tf.raw_ops.Maximum if position % 2 else tf.raw_ops.Minimum
            value = kind(x=value, y=most)
    return value


def _elements(num_bytes: int) -> int:
    return max(num_bytes // _FLOAT_BYTES, 1)


class _Drawing:
    """A graph as it grows, with the ops that initialise its variables."""

    def __init__(self) -> None:
        self._graph = tf.Graph()
        self._init_ops: list[str] = []

    def on(self, device: str) -> contextlib.ExitStack:
        stack = contextlib.ExitStack()
        stack.enter_context(self._graph.as_default())
        stack.enter_context(tf.device(device))
        return stack

    def variable(self, device: str, elements: int, value: float = 1.0) -> Tensor:
        """The handle of a vector that holds `value` everywhere."""
        name = f"variable_{len(self._init_ops)}"
        with self.on(device):
            handle = tf.raw_ops.VarHandleOp(
                dtype=tf.float32, shape=[elements], shared_name=name, name=name
            )
            filled = tf.raw_ops.Fill(dims=[elements], value=value)
            initial = tf.raw_ops.AssignVariableOp(resource=handle, value=filled)
        self._init_ops.append(initial.name)
        return handle

    def read(self, device: str, elements: int, value: float = 1.0) -> Tensor:
        """The value of a new variable."""
        return self.read_again(device, self.variable(device, elements, value), ())

    def read_again(
        self, device: str, handle: Tensor, after: Sequence[Operation | Tensor]
    ) -> Tensor:
        """The variable's buffer: nothing is copied on its device."""
        with self.on(device), tf.control_dependencies(after):
            return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)

    def first_element(self, device: str, vector: Tensor) -> Tensor:
        with self.on(device):
            return tf.raw_ops.Slice(input=vector, begin=[0], size=[1])

    def keep(self, device: str, element: Tensor) -> Operation:
        """Assigns a vector of one element to a new variable on the device."""
        handle = self.variable(device, 1)
        with self.on(device):
            return tf.raw_ops.AssignVariableOp(resource=handle, value=element)

    def probe(
        self, device: str, ends: Sequence[Operation], fetched: Sequence[Tensor] = ()
    ) -> Probe:
        with self.on(device), tf.control_dependencies(ends):
            tf.raw_ops.NoOp(name=_DONE)
        initialization = Initialization(init_ops=tuple(self._init_ops))
        fetches = [_DONE, *(tensor.name for tensor in fetched)]
        return Probe(self._graph.as_graph_def(), TrainingRun({}, fetches, initialization))
