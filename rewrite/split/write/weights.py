"""What reads a weight beside the step that has it in pieces: it makes the weight whole first."""

import copy
from collections.abc import Collection, Mapping

from graphs.flat_graph import FlatGraph, Origin
from graphs.function_library import CONVERTS_WEIGHTS, bodies, library_of
from graphs.graph_view import GraphView
from graphs.loading.model_variables import captured_objects
from graphs.names import data_inputs, free_name, op_of
from graphs.protos import FunctionDef, GraphDef, MetaGraphDef, NodeDef, RepeatedNodes
from rewrite.split.pieces.convert import INTO_PIECES, MAKE_WHOLE, PIECES, as_call, make_whole
from rewrite.split.split_step import SplitStep


class WholeFirst:
    """Has ops of a model wait until what they read of a split step's weights is whole."""

    def __init__(self, graph_def: GraphDef, step: SplitStep) -> None:
        """Begins; functions are added to `graph_def`, in place."""
        self._graph_def, self._step = graph_def, step
        self._made: dict[tuple[str, ...], FunctionDef] = {}

    def in_main_graph(self, begin: Collection[str]) -> None:
        """All that uses the variables, but what the ops need that initialise and restore them."""
        nodes, view = self._graph_def.node, GraphView(self._graph_def)
        before = set(view.ancestors([name for name in begin if name in view.nodes]))
        users = [
            node
            for node in nodes
            if node.name not in before and CONVERTS_WEIGHTS not in node.attr
            if node.op not in ("VarIsInitializedOp", "DestroyResourceOp")
            if any(op_of(name) in self._step.pieces for name in data_inputs(node))
        ]
        if users:
            self._have_wait(nodes, {handle: handle for handle in self._step.pieces}, users)

    def in_functions(self, meta_graph: MetaGraphDef, but: str) -> None:
        """All functions that objects have, but the split step's."""
        objects, library = meta_graph.object_graph_def, library_of(self._graph_def)
        pairs = captured_objects(GraphView(self._graph_def), objects)
        handle_of = {number: op for op, number in pairs if op in self._step.pieces}
        for name, concrete in sorted(objects.concrete_functions.items()):
            bound = list(concrete.bound_inputs)
            if name == but or name not in library or not bound:
                continue
            body = library[name]
            arguments = [each.name for each in body.signature.input_arg][-len(bound) :]
            given = {
                handle_of[number]: argument
                for number, argument in zip(bound, arguments, strict=True)
                if number in handle_of
            }
            taken = {*given.values()}
            users = [node for node in body.node_def if not taken.isdisjoint(node.input)]
            if users:
                self._have_wait(body.node_def, given, users)

    def _have_wait(
        self, nodes: RepeatedNodes, given: Mapping[str, str], users: Collection[NodeDef]
    ) -> None:
        """Adds a call to a body, for which its users of variables wait.

        Args:
          nodes: of the body.
          given: {VarHandleOp: what stands for it in the body}.
          users: among the nodes.
        """
        names = {*given.values(), *(node.name for node in nodes)}
        call = nodes.add(op="StatefulPartitionedCall", name=free_name(MAKE_WHOLE, names))
        call.input.extend(given.values())
        pieces = [name for handle in given for name in self._step.pieces[handle][0].names]
        as_call(call, self._function(tuple(given)), pieces)
        for node in users:
            node.input.append(f"^{call.name}")

    def _function(self, handles: tuple[str, ...]) -> FunctionDef:
        if handles not in self._made:
            variables = [self._step.pieces[handle][0] for handle in handles]
            library = self._graph_def.library
            made = make_whole(variables, library_of(self._graph_def))
            library.function.extend(made)
            self._made[handles] = made[0]
        return self._made[handles]


def without_pieces(graph_def: GraphDef) -> GraphDef:
    """The graph itself, or a new one without what puts weights into pieces and makes them whole."""
    if not any(CONVERTS_WEIGHTS in node.attr for _, nodes in bodies(graph_def) for node in nodes):
        return graph_def
    result = copy.deepcopy(graph_def)
    own = (INTO_PIECES, MAKE_WHOLE)
    kept = [f for f in result.library.function if not f.signature.name.startswith(own)]
    del result.library.function[:]
    result.library.function.extend(kept)
    for _, nodes in bodies(result):
        gone = {node.name for node in nodes if CONVERTS_WEIGHTS in node.attr or is_piece(node)}
        rest = [node for node in nodes if node.name not in gone]
        del nodes[:]
        nodes.extend(rest)
        for node in nodes:
            node.input[:] = [n for n in node.input if not (n[:1] == "^" and n[1:] in gone)]
    return result


def is_piece(node: NodeDef) -> bool:
    """Whether an op holds a piece of a variable."""
    return node.op == "VarHandleOp" and node.attr["shared_name"].s.startswith(PIECES.encode())


def devices_of_pieces(
    graph_def: GraphDef, flat: FlatGraph, devices: Mapping[Origin, str]
) -> dict[Origin, str]:
    """{op of a function: device} of all that hold pieces: those that the step's ops have.

    Args:
      graph_def: the model's main graph and functions.
      flat: its run.
      devices: of the run's ops.
    """
    pairs = zip(flat.graph_def.node, flat.origins, strict=True)
    known = {n.attr["shared_name"].s: devices.get(origin, "") for n, origin in pairs if is_piece(n)}
    return {
        Origin(function, node.name): known[node.attr["shared_name"].s]
        for function, nodes in (bodies(graph_def) if known else ())
        for node in nodes
        if is_piece(node) and known.get(node.attr["shared_name"].s)
    }
