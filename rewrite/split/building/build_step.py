"""Makes the graph of a split step from what was decided of each op."""

from graphs.flat_graph import FlatGraph
from graphs.function_library import library_of
from graphs.host.time_limit import require_time
from graphs.names import op_of
from rewrite.split.any_batch.input_assertions import (
    have_effects_wait,
    refuse_other_batches,
    refuse_other_shapes,
)
from rewrite.split.building.function_shapes import StepShapes
from rewrite.split.building.graph_builder import GraphBuilder
from rewrite.split.building.shard_functions import ShardFunctions
from rewrite.split.building.shard_shapes import FixedShapes, OpenShapes, ShapesOfPieces
from rewrite.split.building.step_tensors import StepTensors
from rewrite.split.decide.decide import Decisions
from rewrite.split.decision import Split
from rewrite.split.node_writer import NodeWriter, TakenNames
from rewrite.split.pieces.convert import have_in_pieces
from rewrite.split.split_step import SplitStep


def build_step(
    flat: FlatGraph,
    decisions: Decisions,
    num_shards: int,
    advice: str = "",
    taken: TakenNames | None = None,
    key: str = "",
) -> SplitStep:
    """The split step.

    Args:
      num_shards: M, at least 2 and at most the batch size.
      advice: of a step that takes inputs of several sizes: what to do with what it refuses.
      taken: names that the model has beside the step's.
      key: of a step with weights in pieces: tells these from those of other models.
    """
    taken = taken or TakenNames()
    empty = type(flat.graph_def)(versions=flat.graph_def.versions)
    writer = NodeWriter(empty, (*flat.nodes, *taken.ops))
    copies = {  # names that are taken before any other op can take them
        name: [writer.free_name(f"{name}/shard_{m}") for m in range(num_shards)]
        for name, answer in decisions.answer_of_op.items()
        if isinstance(answer, Split)
    }
    shapes = _shapes(writer, decisions, num_shards, advice)
    tensors = StepTensors(writer, shapes, decisions, num_shards, flat)
    functions = ShardFunctions(flat.library, decisions.batch, num_shards, taken.functions)
    builder = GraphBuilder(
        writer, decisions, range(num_shards), copies, shapes, tensors, functions.adapt, key
    )
    read_whole = {op_of(fetch) for fetch in flat.fetches}  # and what a whole op reads
    for node in flat.graph_def.node:
        if not isinstance(decisions.answer_of_op[node.name], Split):
            read_whole.update(op_of(name.removeprefix("^")) for name in node.input)
    read_whole &= copies.keys()
    for node in flat.graph_def.node:
        require_time()
        builder.add(node)
        if (node.op == "Const" and node.name in read_whole) or node.name in decisions.pieces:
            builder.add_whole(node)  # so that whole ops read what they did before
    fetches = [_fetch(builder, fetch) for fetch in flat.fetches]
    graph_def, counts = writer.graph_def, tensors.counts
    graph_def.library.CopyFrom(flat.graph_def.library)
    graph_def.library.function.extend(functions.functions)
    pieces = have_in_pieces(writer, decisions, copies, taken.functions) if decisions.pieces else {}
    if shapes.refusal:
        have_effects_wait(graph_def, shapes.refusal, library_of(graph_def), flat.unit_of_node)
    return SplitStep(
        graph_def, fetches, writer.origin_of, {**copies, **builder.said},
        counts["join"], counts["sum"], counts["cut"], pieces,
    )  # fmt: skip


def _shapes(writer: NodeWriter, decisions: Decisions, num_shards: int, advice: str) -> StepShapes:
    """How large shards are, behind what refuses inputs that the step doesn't take."""
    dtype_of = decisions.properties.dtype
    refusals = refuse_other_shapes(writer, decisions.asked_of_feed, dtype_of, advice)
    if decisions.pieces and decisions.is_open:
        return ShapesOfPieces(writer, decisions.batch, num_shards, refusals)
    if not decisions.is_open:
        return FixedShapes(writer, decisions.batch, num_shards, refusals)
    feed, axis = next(iter(decisions.axis_of_feed.items()))
    if feed in decisions.following:
        refusals += refuse_other_batches(
            writer, decisions.following, (feed, axis), dtype_of, advice, refusals[-1:]
        )
    writer.origin = op_of(feed)
    few = (
        f"a batch of fewer than {num_shards} entries can't be split into "
        f"{num_shards} parts: give more, or {advice}; entries:"
    )
    return OpenShapes(writer, (feed, dtype_of(feed)), axis, num_shards, few, refusals)


def _fetch(builder: GraphBuilder, fetch: str) -> str:
    """What to fetch for an unsplit step's fetch; an op in copies is a new no-op after all."""
    writer = builder.writer
    if ":" in fetch:
        writer.origin = op_of(fetch)
        return builder.tensors.whole(fetch)
    copies = builder.stand_for(fetch, None)
    if copies == [fetch]:
        return fetch
    writer.origin = fetch
    name = writer.free_name(f"{fetch}/all")
    return writer.node("NoOp", name, [f"^{copy}" for copy in copies]).name
