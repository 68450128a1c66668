"""A finished benchmark graph: what a run of it needs, and how large it is."""

import dataclasses
import importlib
import time
from collections.abc import Iterable

from graphs.errors import UsageError
from graphs.graph_view import reached
from graphs.protos import Graph
from graphs.source_model import TensorSpec
from graphs.zoo import catalogue


@dataclasses.dataclass(frozen=True)
class ZooGraph:
    """A training graph.

    Attributes:
      name: its name in the catalogue.
      graph: the tf.Graph; its variables are in the usual v1 collections.
      feeds: placeholders with complete shapes.
      train_op: the op that a training step runs.
      loss: the scalar f4 tensor that training lowers, before the step's update.
      init_op: the op that initialises every variable.
      num_parameters: elements of all trainable variables.
    """

    name: str
    graph: Graph
    feeds: tuple[TensorSpec, ...]
    train_op: str
    loss: str
    init_op: str
    num_parameters: int


def build(name: str, size: str = "published", **options: int | str) -> ZooGraph:
    """Builds a benchmark graph; no variable is allocated, so size does not matter.

    Args:
      name: one of NAMES.
      size: "published" or "tiny": the defaults of all options.
      **options: overrides, as options(name) lists them.

    Raises:
      UsageError: a name, option or value is unknown or the values do not go together.
    """
    settings = catalogue.resolve(name, size, options)
    builder = importlib.import_module(f"graphs.zoo.{catalogue.entry(name).module}")
    try:
        network = builder.build(settings)
    except ValueError as error:
        raise UsageError(
            f"building benchmark graph {name!r} with {settings}: TensorFlow finds {error}; "
            "choose values that go together"
        ) from error
    trainable = network.graph.get_collection("trainable_variables")
    return ZooGraph(
        name,
        network.graph,
        tuple(network.feeds),
        train_op="train_op",
        loss="loss:0",
        init_op="init",
        num_parameters=sum(variable.shape.num_elements() for variable in trainable),
    )


def step_ops(zoo_graph: ZooGraph) -> set[str]:
    """The names of the ops that a training step needs, through data and control edges."""
    train_op = zoo_graph.graph.get_operation_by_name(zoo_graph.train_op)
    needed = reached([train_op], lambda op: [t.op for t in op.inputs] + list(op.control_inputs))
    return {op.name for op in needed}


def op_table(
    specs: Iterable[str] = catalogue.NAMES, size: str = "published"
) -> list[dict[str, object]]:
    """One row per benchmark graph, for the documentation.

    Args:
      specs: names, each perhaps with options: "nmt:num_layers=4".
      size: the size whose defaults they take.

    Returns:
      Rows {"name": the spec, "num_ops": ops that train_op needs, "num_parameters": trainable
      elements, "variable_bytes": of all variables, "published_num_ops": int, None where none is
      known or options were chosen, "build_seconds": wall time}.
    """
    return [_row(spec, size) for spec in specs]


def _row(spec: str, size: str) -> dict[str, object]:
    name, options = catalogue.parse(spec)
    start = time.perf_counter()
    zoo_graph = build(name, **{"size": size, **options})  # type: ignore[arg-type]
    return {
        "name": spec,
        "num_ops": len(step_ops(zoo_graph)),
        "num_parameters": zoo_graph.num_parameters,
        "variable_bytes": variable_bytes(zoo_graph),
        "published_num_ops": None if options else catalogue.entry(name).published_num_ops,
        "build_seconds": time.perf_counter() - start,
    }


def variable_bytes(zoo_graph: ZooGraph) -> int:
    """Bytes of all variables: weights, optimizer slots and moving averages."""
    variables = zoo_graph.graph.get_collection("variables")
    return sum(variable.shape.num_elements() * variable.dtype.size for variable in variables)
