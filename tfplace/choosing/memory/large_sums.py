"""Which sums a step adds in turn where memory is short: gradients of steps that share weights.

And which lists of gradients it reads past.
"""

import numpy as np

from graphs.function_library import bodies
from graphs.names import data_inputs, op_of, parse_input
from rewrite.memory.recompute import Place
from rewrite.memory.sums_in_turn import LIST, sums_of
from tfplace.preparing.prepare import PreparedModel

LARGE = 0.01
"""A sum, or a list, is large if its terms hold so much of what the smallest device may use."""
ADDED = frozenset((1, 2, 14, 19))
"""DataTypes of sums that are changed: floats."""


def large_sums(prepared: PreparedModel) -> list[Place]:
    """Sums of a step that spare much, and whose value stays the same bit for bit.

    TensorFlow's AddN takes over the buffer of the first term that nobody else needs, and begins
    with it. So it has to be the first one.
    """
    own = {
        (function, total.name)
        for function, body in bodies(prepared.source.graph_def)
        for total, _ in sums_of(body)
    }
    flat, built = prepared.flat, prepared.built
    if not own:
        return []
    graph, op_of_node = built.graph, built.op_of_node
    numbers = {node.name: number for number, node in enumerate(flat.graph_def.node)}
    outputs = zip(graph.tensor_producer.tolist(), graph.tensor_output.tolist(), strict=True)
    tensor_of = {output: tensor for tensor, output in enumerate(outputs)}
    num_uses = np.bincount(graph.use_tensor, minlength=graph.num_tensors)
    is_single = np.bincount(op_of_node, minlength=graph.num_ops) == 1
    least = LARGE * prepared.problem.usable_bytes().min()
    found: dict[Place, bool] = {}
    for total, terms in sums_of(flat.graph_def.node):
        number, first = numbers[total.name], parse_input(terms[0])
        place = flat.origins[number].function, flat.origins[number].node
        tensor = tensor_of.get((op_of_node[numbers[first.op]], first.output), -1)
        spared = (len(terms) - 2) * graph.tensor_bytes[tensor]
        is_fresh = graph.tensor_shares[tensor] < 0 or graph.tensor_takes_over[tensor]
        is_exact = tensor >= 0 and num_uses[tensor] == 1 and is_fresh
        may = is_exact and is_single[op_of_node[number]] and total.attr["T"].type in ADDED
        found[place] = found.get(place, True) and may and spared >= least and place in own
    return [place for place, may in found.items() if may]


def large_lists(prepared: PreparedModel) -> list[Place]:
    """Lists from which no value leads to what the step returns: no gradient will pass them.

    Others may bring a gradient of their own, which who reads past them would lose.
    """
    flat, graph, op_of_node = prepared.flat, prepared.built.graph, prepared.built.op_of_node
    written = bodies(prepared.source.graph_def)
    own = {(function, node.name) for function, body in written for node in body if node.op == LIST}
    returned, rest = set[str](), [op_of(fetch) for fetch in flat.fetches if ":" in fetch]
    while rest:
        if (name := rest.pop()) not in returned:
            returned.add(name)
            rest += [op_of(each) for each in data_inputs(flat.nodes[name])]
    num_bytes = np.bincount(graph.tensor_producer, graph.tensor_bytes, graph.num_ops)
    least = LARGE * prepared.problem.usable_bytes().min()
    found: dict[Place, bool] = {}
    for node, origin, op in zip(
        flat.graph_def.node, flat.origins, op_of_node.tolist(), strict=True
    ):
        if node.op == LIST and ADDED.issuperset(node.attr["T"].list.type):
            place = origin.function, origin.node
            may = node.name not in returned and num_bytes[op] >= least and place in own
            found[place] = found.get(place, True) and may
    return [place for place, may in found.items() if may]
