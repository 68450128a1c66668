"""Benchmark training graphs: forward, backward and update, at the published sizes.

The contract, section 8, lists them. Names and options come without TensorFlow; the first `build`
imports it.
"""

from graphs.zoo.catalogue import NAMES, options, parse
from graphs.zoo.expert import expert_placement
from graphs.zoo.writing import write
from graphs.zoo.zoo_graph import ZooGraph, build, op_table, step_ops

__all__ = [
    "NAMES",
    "ZooGraph",
    "build",
    "expert_placement",
    "op_table",
    "options",
    "parse",
    "step_ops",
    "write",
]
