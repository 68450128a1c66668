"""Gives what a step returns names that stay whatever becomes of the ops that compute it."""

from __future__ import annotations

import copy
import dataclasses

from graphs.building.op_outputs import output_dtype
from graphs.function_library import library_of
from graphs.names import free_name, with_index
from graphs.source_model import SourceModel
from rewrite.written_signature import signature_call

_OUTPUT = "tfplace_output_"


def with_outputs(source: SourceModel) -> tuple[dict[str, str], SourceModel]:
    """The model with an Identity for each fetched tensor, which stays whole and keeps its name.

    Returns:
      {Identity op: the tensor that it stands for}, and the model that fetches them.
    """
    highest: dict[str, int] = {}
    for fetch in source.fetches:
        if ":" in fetch:
            op, _, index = with_index(fetch).rpartition(":")
            highest[op] = max(highest.get(op, 0), int(index))
    graph_def = copy.deepcopy(source.graph_def)
    outputs: dict[str, str] = {}
    nodes, library = {node.name: node for node in graph_def.node}, library_of(graph_def)
    call = signature_call(graph_def, source.fetches)
    if call is not None and source.saved_model_dir:  # a function returns all that it did
        highest.setdefault(call.name, 0)
    for op, most in highest.items():
        count = len(call.attr["Tout"].list.type) if call is not None else most + 1
        for number in range(count):
            name = free_name(f"{_OUTPUT}{len(outputs)}", nodes)
            identity = graph_def.node.add(op="Identity", name=name, input=[f"{op}:{number}"])
            identity.attr["T"].type = output_dtype(nodes[op], library, number)
            outputs[name] = f"{op}:{number}"
    fetches = [f"{name}:0" for name in outputs] + [f for f in source.fetches if ":" not in f]
    return outputs, dataclasses.replace(source, graph_def=graph_def, fetches=tuple(fetches))
