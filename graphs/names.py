"""Names of ops and tensors as they stand in a NodeDef's inputs, fetches and feeds.

In the main graph an input is "op" (output 0), "op:1" or "^op" (control). In a function body it is
"node:out_arg:i", "node:out_arg", an argument's name, or "^node".
"""

import functools
import re
from collections.abc import Collection, Container, Mapping
from typing import NamedTuple

from graphs.protos import NodeDef, Nodes

SHARD = re.compile(r"/shard_(\d+)_*(?=/|$)")
"""What a name has if its op is a copy for a shard (the contract, section 9): the copy of `a/b` for
shard m is `a/b/shard_m`, with underscores behind it where that name was taken."""

RELAY = re.compile(r"/relayed(?:_\d+)?(?:/block_(\d+))?/shard_\d+_*$")
"""What a name has if its op hands a whole tensor on from a shard to the next: all of it, or a block
of its rows, which is the group."""


class InputName(NamedTuple):
    """One input of a NodeDef, taken apart.

    Attributes:
      op: name of the op or, in a function body, of the op or argument.
      output: index of the output; within `output_arg` where that is named; -1 for control.
      output_arg: name of the output argument; empty in the main graph and for arguments.
    """

    op: str
    output: int = 0
    output_arg: str = ""

    @property
    def tensor(self) -> str:
        """ "op:i", also for output 0; only for data inputs of a main graph."""
        return f"{self.op}:{self.output}"


def original_name(name: str) -> str:
    """What an op is a copy of; its own name if it is whole."""
    return SHARD.sub("", name, count=1)


def parse_input(name: str) -> InputName:
    """Takes an input name apart; ValueError: it has none of the forms in the module's docstring."""
    if name and ":" not in name and name[0] != "^":
        return InputName(name)
    if name.startswith("^"):
        op, output, output_arg = name[1:], -1, ""
    else:
        op, _, rest = name.partition(":")
        first, _, second = rest.partition(":")
        output_arg = "" if first.isdigit() else first
        index = second if output_arg else first
        if not index.isdigit() and (index or name.endswith(":")):
            raise ValueError(f"reading input {name!r}: {index!r} is no output index; want op:0")
        output = int(index or 0)
    if not op or ":" in op:
        raise ValueError(f"reading input {name!r}: it names no op; want op, op:0 or ^op")
    return InputName(op, output, output_arg)


def op_of(name: str) -> str:
    """The op of an input, fetch or feed name, in a main graph or a function body."""
    return name.lstrip("^").partition(":")[0]


@functools.lru_cache(maxsize=1 << 17)  # asked of every input, in every pass over a graph
def tensor_of(name: str) -> str:
    """ "op:i" of a data input's name in a main graph."""
    return parse_input(name).tensor


def free_name(wanted: str, taken: Container[str]) -> str:
    """The name, with underscores behind it where it is taken."""
    while wanted in taken:
        wanted += "_"
    return wanted


def with_index(tensor: str) -> str:
    """ "op" as "op:0"; a name that has its index stays."""
    return tensor if ":" in tensor else f"{tensor}:0"


def data_inputs(node: NodeDef) -> list[str]:
    """The inputs of a NodeDef that are tensors, in order."""
    return [name for name in node.input if name[:1] != "^"]  # asked for of every op, often


def beside(node: NodeDef) -> list[str]:
    """The ops that a NodeDef has to lie beside, in order."""
    wishes = node.attr["_class"].list.s if "_class" in node.attr else ()
    return [wish.decode(errors="replace").removeprefix("loc:@") for wish in wishes]


def rename_beside(node: NodeDef, new_name: Mapping[str, str]) -> None:
    """Has a NodeDef lie beside ops under their new names, where they have any."""
    for i, op in enumerate(beside(node)):
        if op in new_name:
            node.attr["_class"].list.s[i] = f"loc:@{new_name[op]}".encode()


def source_of(tensor: str, nodes: Nodes, through: Collection[str]) -> str:
    """The tensor that a tensor comes from, through ops of types that pass their first input on.

    `tensor` is an input as a NodeDef has it, `nodes` are those of its graph or function body, and
    `through` is a set of graphs/op_types.py.
    """
    for _ in nodes:  # no more often than there are nodes: a damaged graph may hold a circle
        node = nodes.get(op_of(tensor))
        if node is None or node.op not in through or not node.input:
            break
        tensor = node.input[0]
    return tensor
