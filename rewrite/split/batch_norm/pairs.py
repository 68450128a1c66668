"""Which batch normalisations can be taken apart: a forward op together with its gradients."""

from collections import defaultdict
from collections.abc import Mapping

from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.names import tensor_of
from rewrite.split.decision import GRADIENTS, NORMS

_PASSING = frozenset({"Identity", "IdentityN"})
_RESERVED = frozenset({3, 4, 5})


def pairs(
    flat: FlatGraph, properties: TensorProperties, training: set[str], wanted: set[str]
) -> set[str]:
    """Forward ops to be taken apart with all their gradients; none that can't be."""
    users = users_of_tensors(flat)
    chosen = set()
    for name in wanted:
        node = flat.nodes[name]
        shape = properties.shape(node.input[0])
        if node.op not in NORMS or shape is None or min(shape) < 1:
            continue
        readers, is_apart = _readers_of_reserved(flat, users, name)
        if is_apart and readers <= training:
            chosen |= {name, *readers}
    return chosen


def users_of_tensors(flat: FlatGraph) -> dict[str, list[tuple[str, int]]]:
    """{"op:i": [(op that reads it, as which input)]}; fetches are read by ""."""
    users: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for node in flat.graph_def.node:
        for position, name in enumerate(node.input):
            if not name.startswith("^"):
                users[tensor_of(name)].append((node.name, position))
    for fetch in flat.fetches:
        if ":" in fetch:
            users[fetch].append(("", 0))
    return users


def _readers_of_reserved(
    flat: FlatGraph, users: Mapping[str, list[tuple[str, int]]], name: str
) -> tuple[set[str], bool]:
    """Gradients that read what a forward op reserves for them; whether nobody else does."""
    todo = [f"{name}:{index}" for index in _RESERVED]
    readers = set()
    while todo:
        tensor = todo.pop()
        for user, position in users.get(tensor, ()):
            node = flat.nodes.get(user)
            if node is not None and node.op in _PASSING:
                todo.append(f"{user}:{position}")
            elif node is not None and node.op in GRADIENTS and position in _RESERVED:
                readers.add(user)
            else:
                return set(), False
    # What a gradient has beyond its three results is made for nobody.
    return readers, not any(f"{reader}:{i}" in users for reader in readers for i in (3, 4))
