"""Builds a training graph: its variables, feeds, parts of the expert placement, and its step."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2

from graphs.protos import DType, KerasObject, Operation, Tensor, TfVariable
from graphs.source_model import TensorSpec
from graphs.zoo import expert

v1 = tf.compat.v1


@dataclasses.dataclass(frozen=True)
class Training:
    """How a training step is made from a loss.

    Attributes:
      optimizer: makes the v1 optimizer; called inside the graph.
      clip_norm: global norm to which gradients are clipped, None for no clipping.
      running_sum: add up a variable's gradients one by one. An unrolled network has one gradient
        per step and weight. Adding them all at once keeps all of them in memory: 10 GB for rnnlm's
        40 steps, more than a K80 has left. This is tf.AggregationMethod.EXPERIMENTAL_TREE.
      dense_gradients: make whole tensors of the gradients of embedding tables. Adam moves every row
        of a table in every step anyway. On gradients of rows it looks for duplicate rows first,
        whose number, and with it the shapes that follow, would depend on the batch.
      weight_decay: adds weight_decay x half the squared norm of every kernel to the loss.
    """

    optimizer: Callable[[], KerasObject]
    clip_norm: float | None = None
    running_sum: bool = False
    dense_gradients: bool = False
    weight_decay: float = 0.0


class Network:
    """Collects the parts of a zoo graph while it is built.

    A variable is read once and all its users share the read, so that a weight that is used at every
    time step moves between devices once. No op asks for a device, and gradients are not colocated
    with their forward ops. Optimizers colocate slots and updates with the variable, as always.

    Attributes:
      graph: the tf.Graph.
      num_parts: parts of the expert placement.
      feeds: placeholders, in order of creation.
      updates: ops that have to run in every step beside the optimizer's (moving averages).
      kernels: reads of the variables that weight decay applies to.
    """

    def __init__(self, num_parts: int) -> None:
        self.graph = tf.Graph()
        self.num_parts = num_parts
        self.feeds: list[TensorSpec] = []
        self.updates: list[Operation] = []
        self.kernels: list[Tensor] = []
        with self.graph.as_default():
            v1.set_random_seed(0)

    @contextlib.contextmanager
    def part(self, index: int) -> Iterator[None]:
        """Ops made inside belong to that part of the expert placement; -1 is the CPU."""
        if not -1 <= index < self.num_parts:
            raise ValueError(f"part {index} of an expert placement of {self.num_parts} parts")
        with self.graph._attr_scope({expert.PART_ATTRIBUTE: attr_value_pb2.AttrValue(i=index)}):
            yield

    def placeholder(self, name: str, dtype: DType, shape: Sequence[int]) -> Tensor:
        """A fed tensor of a fixed shape."""
        with self.part(expert.CPU):
            tensor = v1.placeholder(dtype, shape, name=name)
        self.feeds.append(TensorSpec(tensor.name, tensor.dtype.name, tuple(shape)))
        return tensor

    def variable(
        self,
        name: str,
        shape: Sequence[int],
        initial: Callable[[], Tensor] | float = 0.0,
        trainable: bool = True,
    ) -> TfVariable:
        """A resource variable in the current name scope.

        Args:
          initial: makes the initial value, or the constant that fills it.
          trainable: whether the optimizer changes it.

        Returns:
          The variable; `read` gives its value.
        """
        if callable(initial):
            make = initial
        else:
            fill = float(initial)

            def make() -> Tensor:
                return tf.fill(list(shape), fill)

        return v1.Variable(make, trainable=trainable, name=name, use_resource=True)

    def weights(self, name: str, shape: Sequence[int], stddev: float, decay: bool = True) -> Tensor:
        """The one read of a new truncated-normal variable; `decay` says if weight decay applies."""
        value = self.read(
            self.variable(name, shape, lambda: tf.random.truncated_normal(shape, stddev=stddev))
        )
        if decay:
            self.kernels.append(value)
        return value

    def constant_weights(self, name: str, shape: Sequence[int], value: float = 0.0) -> Tensor:
        """The one read of a new variable that starts as a constant: biases and scales."""
        return self.read(self.variable(name, shape, value))

    def dense(self, inputs: Tensor, width: int, stddev: float) -> Tensor:
        """A fully connected layer with bias, f4[B, n] to f4[B, width]."""
        kernel = self.weights("kernel", [inputs.shape[-1], width], stddev)
        bias = self.constant_weights("bias", [width])
        return tf.nn.bias_add(tf.matmul(inputs, kernel), bias)

    def read(self, variable: TfVariable) -> Tensor:
        """Reads a variable; call once and share the tensor."""
        with tf.name_scope(f"{variable.op.name}/value/"):
            return variable.value()

    def train(self, loss: Tensor, training: Training) -> None:
        """Adds "loss", "train_op" and "init" and gives every op its part."""
        with self.graph.as_default():
            if training.weight_decay:
                with tf.name_scope("weight_decay"):
                    norms = [tf.nn.l2_loss(kernel) for kernel in self.kernels]
                    penalty = tf.multiply(tf.add_n(norms), training.weight_decay, name="penalty")
                with self.part(self.num_parts - 1):
                    loss = tf.add(loss, penalty, name="decayed_loss")
            loss = tf.identity(loss, name="loss")
            variables = v1.trainable_variables()
            method = tf.AggregationMethod.EXPERIMENTAL_TREE if training.running_sum else None
            gradients = v1.gradients(loss, variables, aggregation_method=method)
            if training.dense_gradients:
                gradients = [tf.convert_to_tensor(g, name="dense_gradient") for g in gradients]
            if training.clip_norm is not None:
                gradients, _ = tf.clip_by_global_norm(gradients, training.clip_norm, name="clip")
            pairs = list(zip(gradients, variables, strict=True))
            applied = training.optimizer().apply_gradients(pairs, name="apply")
            train_op = tf.group(applied, *self.updates, name="train_op")
            # apply_gradients has put its own op there, which leaves out the moving averages.
            self.graph.clear_collection(v1.GraphKeys.TRAIN_OP)
            self.graph.add_to_collection(v1.GraphKeys.TRAIN_OP, train_op)
            tf.group(*[v.initializer for v in v1.global_variables()], name="init")
        expert.spread_parts(self.graph, self.num_parts)
