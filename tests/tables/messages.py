"""What devices send each other in a step: as predicted, and as a trace has seen it.

A message is named by the op whose tensor it carries, and by the device that gets it.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Sequence

from graphs.building.executed_controls import StepEnd
from graphs.op_graph import IntArray, OpGraph
from tfplace.measurement.step_stats import StepTrace

END = "the step's end"
"""What a device sends that has done its part of all that the step's end waits for."""
_EDGE = re.compile(r"edge_\d+_")
_GROUPED = re.compile(r"GroupCrossDeviceControlEdges_\d+/")

Messages = collections.Counter["Message"]


@dataclasses.dataclass(frozen=True, order=True)
class Message:
    """One or several tensors of an op that a device gets.

    Attributes:
      op: makes the tensor; END for what Grappler makes of several control edges to the step's end.
      device: gets it.
    """

    op: str
    device: str


def predicted_messages(
    graph: OpGraph, end: StepEnd, device_of_op: IntArray, device_names: Sequence[str]
) -> Messages:
    """{message: how many tensors} of a step, as simulated, and those that tell its end.

    Args:
      graph: what is simulated, without the control edges of the step's end.
      end: what they lead to.
      device_of_op: i4[N].
      device_names: [D].
    """
    moved = {
        (int(tensor), int(device_of_op[op]))
        for tensor, op in zip(graph.use_tensor, graph.use_op, strict=True)
        if device_of_op[graph.tensor_producer[tensor]] != device_of_op[op]
    }
    messages: Messages = collections.Counter(
        Message(graph.op_names[graph.tensor_producer[tensor]], device_names[device])
        for tensor, device in moved
    )
    if len(end.ops):
        last = int(device_of_op[end.ops[0]])
        waited_for: dict[int, list[int]] = {}
        for op in end.waited_for.tolist():
            waited_for.setdefault(int(device_of_op[op]), []).append(op)
        for device, ops in waited_for.items():
            if device != last:
                name = graph.op_names[ops[0]] if len(ops) == 1 else END
                messages[Message(name, device_names[last])] += 1
    return messages


def traced_messages(trace: StepTrace, end_names: Sequence[str]) -> Messages:
    """{message: how many tensors} of a traced step between tasks.

    Args:
      trace: the step.
      end_names: the ops of the step's end.
    """
    ends = set(end_names)
    messages: Messages = collections.Counter()
    for name, kind, device in zip(trace.op_names, trace.op_types, trace.devices, strict=True):
        if kind == "RecvTensor":
            op = _EDGE.sub("", name, count=1)
            grouped = _GROUPED.sub("", op, count=1)
            is_end = grouped != op and grouped in ends
            messages[Message(END if is_end else op, device)] += 1
    return messages


def fullest(traces: Sequence[StepTrace]) -> StepTrace:
    """The trace with the most rows: TensorFlow may leave out what a task received in a step."""
    return max(traces, key=lambda trace: len(trace.op_names))
