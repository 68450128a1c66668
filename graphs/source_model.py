"""A model as it came, and one run of it."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import graphs.late_tensorflow as tf
from graphs.graph_view import GraphView
from graphs.protos import GraphDef, MetaGraphDef


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """A fed or fetched tensor.

    Attributes:
      tensor: "op:i" in the run graph.
      dtype: TensorFlow dtype name, "float32".
      shape: dimensions; None for an unknown rank, -1 for an unknown dimension.
    """

    tensor: str
    dtype: str
    shape: tuple[int, ...] | None


@dataclasses.dataclass(frozen=True)
class Variable:
    """A variable of the run graph.

    Attributes:
      name: shared name or, where there is none, the op's name.
      op: the VarHandleOp or VariableV2 node.
      dtype: as declared.
      shape: as declared.
      trainable: whether training changes it.
    """

    name: str
    op: str
    dtype: str
    shape: tuple[int, ...]
    trainable: bool


@dataclasses.dataclass(frozen=True)
class Initialization:
    """How the variables get their values before the first run.

    Attributes:
      init_ops: ops of the run graph to run first.
      restore_op: the saver's op; empty where there is none.
      filename_tensor: the tensor that the saver takes a checkpoint's prefix from.
      checkpoint_prefix: what to feed to filename_tensor.
      asset_feeds: {tensor: path} fed while init_ops run.
      random_variables: names of variables that nothing initialises; they get small random
        values.
      saved_variables: {name of a variable: its key in the checkpoint}, as the objects of a model
        that TensorFlow 2 saved have it; read from there, whatever restore_op does.
    """

    init_ops: Sequence[str] = ()
    restore_op: str = ""
    filename_tensor: str = ""
    checkpoint_prefix: str = ""
    asset_feeds: Mapping[str, str] = dataclasses.field(default_factory=dict)
    random_variables: Sequence[str] = ()
    saved_variables: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Signature:
    """A signature of a model.

    Attributes:
      inputs: {argument: tensor of the run graph}.
      outputs: {name: tensor of the run graph}.
      method: its method name.
    """

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    method: str = ""


@dataclasses.dataclass(frozen=True)
class SourceModel:
    """A loaded model and the run that is to be placed.

    Attributes:
      path: where it came from.
      kind: "graph_def", "meta_graph_def", "saved_model_v1", "saved_model_v2", "keras".
      graph_def: the run graph: the model's main graph and function library and, if a training
        step had to be made, that step's ops.
      feeds: what a run is fed; shapes are complete.
      fetches: tensors "op:i" and ops "op" that a run asks for.
      mode: "train" or "inference".
      step_origin: how the run was found, one sentence: "signature train_step", "a training
        step made from 4 trainable variables", ...
      signatures: {name: Signature}.
      variables: all variables of the run graph.
      initialization: how they get values.
      saved_model_dir: the SavedModel that `path` is, or that was exported from it; empty
        for a GraphDef or MetaGraphDef.
      meta_graph_def: the proto that graph_def came in, None for a GraphDef.
      guessed: a sentence about each thing that was guessed.
      origins: {op of graph_def: its graphs.flat_graph.Origin in the model as it came} of the
        forward ops, if a training step was made; the step's own ops are not in it. Else None.
      split_graph: the GraphDef to emit for a GraphDef or MetaGraphDef whose step was split.
      whole_fetches: what a run of the unsplit step fetches there, in the order of `fetches`.
    """

    path: str
    kind: str
    graph_def: GraphDef
    feeds: Sequence[TensorSpec]
    fetches: Sequence[str]
    mode: str
    step_origin: str
    signatures: Mapping[str, Signature]
    variables: Sequence[Variable]
    initialization: Initialization
    saved_model_dir: str
    meta_graph_def: MetaGraphDef
    guessed: Sequence[str]
    origins: Mapping[str, Any] | None = None
    split_graph: GraphDef = None
    whole_fetches: Sequence[str] = ()

    @property
    def trainable_bytes(self) -> int:
        """Bytes of the run's variables that training changes.

        Keras 3 saves a variable under each way to it: a run uses one of these copies.
        """
        of_run = GraphView(self.graph_def).ancestors(self.fetches)
        return sum(
            math.prod(variable.shape) * tf.as_dtype(variable.dtype).size
            for variable in self.variables
            if variable.trainable and variable.op in of_run
        )
