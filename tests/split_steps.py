"""A split step by hand: a layer or two in M shards, with sums, variables and updates."""

from collections.abc import Mapping, Sequence
from typing import Any

from graphs.op_graph import IntArray
from graphs.problem import Problem
from tests.builders import Machine, Op, build_problem


def split_step(
    num_shards: int,
    num_layers: int = 2,
    seconds: float | tuple[float, ...] = 1.0,
    hosts: Mapping[int, Sequence[int]] | None = None,
    **machine: Any,
) -> Problem:
    """A step of some layers whose ops are named as a split step's are.

    Args:
      num_shards: M.
      num_layers: each has a variable of 8 bytes, more in later layers, and an update of it.
      seconds: of each copy, on all devices or on each.
      hosts: {host: its shards}, where there are several: weights are read through a cast and handed
        on from shard to shard, gradients summed likewise; each layer's variable is at home beside
        the first shard of one host after another.
      machine: what Machine takes; a CPU, two GPUs and fast links where nothing is said.
    """
    ops = [Op("x", 0.0, (), (4,)), Op("x/cut", 0.0, ("x:0",), (1,) * num_shards)]
    for layer in range(num_layers):
        size = 8 * (layer + 1)
        ops.append(Op(f"w{layer}", 0.0, (), (size,), alloc=(0,), persistent=size, colocation=layer))
    below = [f"x/cut:{m}" for m in range(num_shards)]
    for layer in range(num_layers):
        names = [f"l{layer}/shard_{m}" for m in range(num_shards)]
        weights = _handed_on(ops, layer, hosts) if hosts else [f"w{layer}:0"] * num_shards
        for name, read, weight in zip(names, below, weights, strict=True):
            ops.append(Op(name, seconds, (read, weight), (2,)))
        below = [f"{name}:0" for name in names]
    for layer in range(num_layers):
        names = [f"grad/l{layer}/shard_{m}" for m in range(num_shards)]
        for name, read in zip(names, below, strict=True):
            ops.append(Op(name, seconds, (read,), (8 * (layer + 1),)))
        terms = tuple(f"{name}:0" for name in names)
        if hosts:
            terms = _summed_round(ops, layer, hosts, terms)
        ops.append(Op(f"grad/l{layer}/summed", 0.01, terms, (8 * (layer + 1),)))
        read = (f"grad/l{layer}/summed:0", f"w{layer}:0")
        ops.append(Op(f"update{layer}", 0.01, read, (), colocation=layer))
    options = {"num_devices": 3, "latency": 0.001, "bandwidth": 1000.0, **machine}
    return build_problem(ops, Machine(**options))


def by_name(problem: Problem, values: IntArray) -> dict[str, int]:
    """{op: its value}, of values i4[N] such as a placement."""
    return dict(zip(problem.graph.op_names, values.tolist(), strict=True))


def _hosts_from(layer: int, hosts: Mapping[int, Sequence[int]]) -> list[tuple[int, list[int]]]:
    """The hosts from a layer's home on, and their shards from its turn on."""
    rows, turn = list(hosts.items()), layer // len(hosts)
    at = layer % len(rows)
    turned = [(host, turn % len(shards), list(shards)) for host, shards in (*rows[at:], *rows[:at])]
    return [(host, [*shards[by:], *shards[:by]]) for host, by, shards in turned]


def _handed_on(ops: list[Op], layer: int, hosts: Mapping[int, Sequence[int]]) -> list[str]:
    """Adds a cast of a layer's variable and its relays; what each shard reads."""
    size = (8 * (layer + 1),)
    ops.append(Op(f"cast{layer}", 0.0, (f"w{layer}:0",), size))
    read, first = {}, f"cast{layer}:0"
    for _, shards in _hosts_from(layer, hosts):
        here = first
        for shard in shards:
            name = f"cast{layer}/relayed/shard_{shard}"
            ops.append(Op(name, 0.0, (here,), size))
            here = read[shard] = f"{name}:0"
        first = read[shards[0]]
    return [read[shard] for shard in sorted(read)]


def _summed_round(
    ops: list[Op], layer: int, hosts: Mapping[int, Sequence[int]], terms: tuple[str, ...]
) -> tuple[str, ...]:
    """Adds a layer's sums on all devices but its home, one after the other; what is left to add."""
    so_far: tuple[str, ...] = ()
    here, *others = [shards for _, shards in _hosts_from(layer, hosts)]
    for shards in (*others, here):
        inside: tuple[str, ...] = (terms[shards[1]],)
        for shard in shards[2:]:
            inside = _sum(ops, layer, shard, (terms[shard], *inside))
        so_far = (terms[shards[0]], *inside, *so_far)
        if shards is not here:
            so_far = _sum(ops, layer, shards[0], so_far)
    return so_far


def _sum(ops: list[Op], layer: int, shard: int, terms: tuple[str, ...]) -> tuple[str, ...]:
    name = f"grad/l{layer}/summed/shard_{shard}"
    ops.append(Op(name, 0.01, terms, (8 * (layer + 1),)))
    return (f"{name}:0",)
