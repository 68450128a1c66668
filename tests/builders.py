"""Problems small enough to work out by hand, and random ones for property tests.

Ops are written as `Op` records in a topological order; an input is "name:output" or "^name" for
a control edge. `build_problem` turns them into arrays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from graphs.cluster import COMMUNICATION_RULES, Cluster, Device
from graphs.executor_model import ExecutorModel
from graphs.op_graph import SHAPE_DIMS, OpGraph
from graphs.problem import Problem


@dataclasses.dataclass(frozen=True)
class Op:
    """One op of a hand-written problem.

    Attributes:
      name: unique.
      seconds: on every device, or one number per device.
      inputs: "producer:output" or "^producer".
      outputs: bytes of each output tensor.
      alloc: bytes newly allocated for each output; as `outputs` where it is None.
      shares: "producer:output" whose buffer each output is, empty for its own; itself: kept;
        with "?" before it, one that it takes over.
      persistent, temp: bytes.
      colocation: group number, -1 for none.
      pin: device index, -1 for free.
      type: op type.
    """

    name: str
    seconds: float | Sequence[float] = 1.0
    inputs: Sequence[str] = ()
    outputs: Sequence[int] = (0,)
    alloc: Sequence[int] | None = None
    shares: Sequence[str] = ()
    persistent: int = 0
    temp: int = 0
    colocation: int = -1
    pin: int = -1
    type: str = "Op"


@dataclasses.dataclass(frozen=True)
class Machine:
    """Devices and links of a hand-written problem: `num_devices` equal ones.

    Attributes:
      latency: seconds, a number or [D, D].
      bandwidth: bytes per second, a number or [D, D].
      slots, memory: a number or [D].
      types: device types; all "GPU" but the first where it is None.
    """

    num_devices: int = 2
    latency: float | Sequence[Sequence[float]] = 0.0
    bandwidth: float | Sequence[Sequence[float]] = 1.0
    slots: int | Sequence[int] = 1
    memory: int | Sequence[int] = 10**9
    communication: str = "duplex"
    memory_reserve: float = 0.0
    types: Sequence[str] | None = None

    def cluster(self) -> Cluster:
        """The machine as a Cluster; device 0 is the CPU unless `types` says otherwise."""
        size = self.num_devices
        types = self.types or ["CPU"] + ["GPU"] * (size - 1)
        numbers = [list(types[:index]).count(kind) for index, kind in enumerate(types)]
        slots = np.broadcast_to(self.slots, size)
        memory = np.broadcast_to(self.memory, size)
        latency = np.array(np.broadcast_to(self.latency, (size, size)), dtype=np.float64)
        bandwidth = np.array(np.broadcast_to(self.bandwidth, (size, size)), dtype=np.float64)
        np.fill_diagonal(latency, 0.0)
        np.fill_diagonal(bandwidth, np.inf)
        devices = [
            Device(f"/device:{kind}:{number}", kind, int(memory[index]), int(slots[index]))
            for index, (kind, number) in enumerate(zip(types, numbers, strict=True))
        ]
        return Cluster("hand", self.communication, devices, latency, bandwidth)


def build_problem(ops: Sequence[Op], machine: Machine | None = None) -> Problem:
    """The Problem of hand-written ops on a hand-written machine."""
    machine = machine or Machine()
    cluster = machine.cluster()
    seconds = [np.broadcast_to(np.float64(op.seconds), cluster.num_devices) for op in ops]
    return Problem(
        graph=build_graph(ops),
        op_seconds=np.array(seconds, dtype=np.float64).reshape(len(ops), cluster.num_devices),
        pinned_device=np.array([op.pin for op in ops], dtype=np.int32),
        device_names=cluster.device_names,
        device_types=[device.type for device in cluster.devices],
        device_slots=np.array([device.slots for device in cluster.devices], dtype=np.int32),
        device_memory_bytes=np.array(
            [device.memory_bytes for device in cluster.devices], dtype=np.int64
        ),
        link_latency=cluster.link_latency,
        link_bytes_per_second=cluster.link_bytes_per_second,
        link_channels=cluster.link_channels(),
        memory_reserve=machine.memory_reserve,
        communication=cluster.communication,
    )


def build_graph(ops: Sequence[Op]) -> OpGraph:
    """The OpGraph of hand-written ops; a control tensor comes after its producer's outputs."""
    controlled = {name[1:] for op in ops for name in op.inputs if name.startswith("^")}
    tensors: list[tuple[int, ...]] = []
    index_of: dict[str, int] = {}
    for number, op in enumerate(ops):
        alloc = op.outputs if op.alloc is None else op.alloc
        shares = op.shares or [""] * len(op.outputs)
        for output, (size, new, shared) in enumerate(zip(op.outputs, alloc, shares, strict=True)):
            index_of[f"{op.name}:{output}"] = len(tensors)
            source = index_of[shared.lstrip("?")] if shared else -1
            tensors.append((number, output, size, new, source, shared.startswith("?")))
        if op.name in controlled:
            index_of[f"^{op.name}"] = len(tensors)
            tensors.append((number, -1, 0, 0, -1, 0))
    uses = sorted({(index_of[name], number) for number, op in enumerate(ops) for name in op.inputs})
    columns = np.array(tensors, dtype=np.int64).reshape(-1, 6)
    pairs = np.array(uses, dtype=np.int32).reshape(-1, 2)
    return OpGraph(
        op_names=[op.name for op in ops],
        op_types=[op.type for op in ops],
        tensor_producer=columns[:, 0].astype(np.int32),
        tensor_output=columns[:, 1].astype(np.int32),
        tensor_bytes=columns[:, 2].copy(),
        tensor_alloc_bytes=columns[:, 3].copy(),
        tensor_shares=columns[:, 4].astype(np.int32),
        tensor_takes_over=columns[:, 5].astype(bool),
        tensor_shape=np.full((len(tensors), SHAPE_DIMS), -1, dtype=np.int32),
        use_tensor=pairs[:, 0].copy(),
        use_op=pairs[:, 1].copy(),
        op_persistent_bytes=np.array([op.persistent for op in ops], dtype=np.int64),
        op_temp_bytes=np.array([op.temp for op in ops], dtype=np.int64),
        colocation_group=np.array([op.colocation for op in ops], dtype=np.int32),
    )


def chain(num_ops: int = 3, size: int = 1, machine: Machine | None = None) -> Problem:
    """op0 → op1 → …, one second and `size` bytes each."""
    ops = [
        Op(f"op{index}", inputs=(f"op{index - 1}:0",) if index else (), outputs=(size,))
        for index in range(num_ops)
    ]
    return build_problem(ops, machine)


def diamond(size: int = 1, machine: Machine | None = None) -> Problem:
    """top → left, right → bottom; one second and `size` bytes each."""
    ops = [
        Op("top", outputs=(size,)),
        Op("left", inputs=("top:0",), outputs=(size,)),
        Op("right", inputs=("top:0",), outputs=(size,)),
        Op("bottom", inputs=("left:0", "right:0"), outputs=(size,)),
    ]
    return build_problem(ops, machine)


def two_towers(height: int = 4, size: int = 1, machine: Machine | None = None) -> Problem:
    """Two independent chains of `height` one-second ops, joined by an op at the end.

    Best on two equal devices: a tower each, so height + transfer + 1 seconds.
    """
    ops = [
        Op(f"{side}{level}", inputs=(f"{side}{level - 1}:0",) if level else (), outputs=(size,))
        for level in range(height)
        for side in "ab"
    ]
    join = Op("join", inputs=(f"a{height - 1}:0", f"b{height - 1}:0"))
    return build_problem([*ops, join], machine)


def colocated_pair(machine: Machine | None = None) -> Problem:
    """variable and update share colocation group 0; the gradient between them is free."""
    ops = [
        Op("variable", seconds=0.0, outputs=(8,), alloc=(0,), persistent=8, colocation=0),
        Op("gradient", inputs=("variable:0",), outputs=(8,)),
        Op("update", inputs=("variable:0", "gradient:0"), outputs=(), colocation=0),
    ]
    return build_problem(ops, machine)


def fan_out(num_users: int = 4, size: int = 1, machine: Machine | None = None) -> Problem:
    """One source whose tensor `num_users` one-second ops use, and a sink that waits for all."""
    users = [Op(f"user{index}", inputs=("source:0",)) for index in range(num_users)]
    sink = Op("sink", inputs=tuple(f"^user{index}" for index in range(num_users)), outputs=())
    return build_problem([Op("source", outputs=(size,)), *users, sink], machine)


def unrolled_lstm(
    num_layers: int = 2, num_steps: int = 4, machine: Machine | None = None, seed: int = 0
) -> Problem:
    """A recurrent training step in outline: forward and backward cells, weights, updates.

    A cell is a chain of 11 ops of unequal size (matmul, split, gates, …) forward and twice
    that backward; each layer's weights are read by all of its cells and updated at the end.
    """
    rng = np.random.default_rng(seed)
    ops: list[Op] = []
    for layer in range(num_layers):
        ops.append(
            Op(f"w{layer}", 1e-6, (), (1 << 22,), (0,), persistent=1 << 22, colocation=layer)
        )
    last: dict[tuple[str, int, int], str] = {}

    def cell(kind: str, layer: int, step: int, num_ops: int, inputs: Sequence[str]) -> str:
        previous = ""
        for part in range(num_ops):
            name = f"{kind}{layer}_{step}_{part}"
            sources = (*inputs, f"w{layer}:0") if not part else (f"{previous}:0",)
            if part > 3 and part % 3 == 0:
                sources = (*sources, f"{kind}{layer}_{step}_{part - 3}:0")
            seconds = float(rng.choice([2e-5, 5e-5, 4e-4]) if part else 1e-3)
            ops.append(Op(name, seconds, sources, (int(rng.choice([1 << 12, 1 << 18])),)))
            previous = name
        last[kind, layer, step] = previous
        return previous

    for step in range(num_steps):
        for layer in range(num_layers):
            sources = [("f", layer - 1, step), ("f", layer, step - 1)]
            cell("f", layer, step, 11, [f"{last[key]}:0" for key in sources if key in last])
    for step in reversed(range(num_steps)):
        for layer in reversed(range(num_layers)):
            sources = [("f", layer, step), ("b", layer + 1, step), ("b", layer, step + 1)]
            cell("b", layer, step, 22, [f"{last[key]}:0" for key in sources if key in last])
    for layer in range(num_layers):
        gradients = tuple(f"{last['b', layer, step]}:0" for step in range(num_steps))
        ops.append(Op(f"update{layer}", 1e-3, (*gradients, f"w{layer}:0"), (), colocation=layer))
    return build_problem(ops, machine)


def random_graph(num_ops: int = 12) -> Problem:
    """A random graph on two GPUs, and a CPU that is too slow to help; always the same one."""
    rng = np.random.default_rng(7)
    ops = []
    for index in range(num_ops):
        count = min(index, int(rng.integers(0, 3)))
        inputs = tuple(f"op{i}:0" for i in rng.choice(index, count, replace=False)) if count else ()
        seconds = float(rng.integers(1, 6))
        ops.append(
            Op(f"op{index}", (50 * seconds, seconds, seconds), inputs, (int(rng.integers(1, 4)),))
        )
    return build_problem(ops, Machine(3, latency=0.1, bandwidth=2.0))


def random_problem(rng: np.random.Generator, max_ops: int = 12) -> Problem:
    """A random problem that provokes ties: few distinct durations, sizes and latencies.

    It has several tensors per op, buffers that are shared or taken over, control edges, zero-second
    ops, several slots, any of the channel rules, and unused outputs. Every op has a kernel
    everywhere.
    """
    num_ops, num_devices = int(rng.integers(1, max_ops + 1)), int(rng.integers(1, 5))
    ops: list[Op] = []
    available: list[str] = []
    for index in range(num_ops):
        names = [*available, *(f"^{op.name}" for op in ops)]
        count = min(len(names), int(rng.integers(0, 4)))
        sizes = tuple(int(size) for size in rng.choice([0, 1, 2, 3, 7], rng.integers(0, 4)))
        name = f"op{index}"
        inputs = tuple(str(x) for x in rng.choice(names, count, replace=False)) if count else ()
        handed = ["", *(how + each for each in inputs if each in available for how in ("", "?"))]
        ops.append(
            Op(
                name,
                tuple(float(x) for x in rng.choice([0.0, 0.5, 1.0, 0.1, 0.3], num_devices)),
                inputs,
                sizes,
                tuple(int(rng.choice([0, size, size + 1])) for size in sizes),
                tuple(str(rng.choice([*handed, f"{name}:{n}"])) for n in range(len(sizes))),
                persistent=int(rng.integers(0, 4)),
                temp=int(rng.integers(0, 4)),
            )
        )
        available.extend(f"{name}:{output}" for output in range(len(sizes)))
    shape = (num_devices, num_devices)
    machine = Machine(
        num_devices,
        latency=rng.choice([0.0, 0.1, 0.5], shape).tolist(),
        bandwidth=rng.choice([1.0, 2.0, 10.0, np.inf], shape).tolist(),
        slots=rng.integers(1, 4, num_devices).tolist(),
        communication=str(rng.choice(COMMUNICATION_RULES)),
    )
    return build_problem(ops, machine)


def with_executor(
    problem: Problem,
    send: tuple[float, float] = (0.0, 0.0),
    receive: tuple[float, float] = (0.0, 0.0),
    inline: Sequence[str] = (),
    slowdown: Sequence[float] | None = None,
    turn: Sequence[Sequence[int]] | None = None,
    sends_first: Sequence[bool] | None = None,
) -> Problem:
    """The problem under a depth-first executor.

    Args:
      problem: its links' figures hold what the ends work.
      send, receive: seconds of a transfer and of each of its bytes, on every link.
      inline: types of ops that run inline.
      slowdown: [N] of rule 10 on every device; all devices share memory.
      turn: [K, N] the ops' places in orders in which TensorFlow may list them.
      sends_first: [D] whose sends go before all else.
    """
    apart = (~np.eye(problem.num_devices, dtype=bool))[..., None]
    executor = ExecutorModel(
        apart * np.array(send),
        apart * np.array(receive),
        np.array([kind in inline for kind in problem.graph.op_types], dtype=bool),
        None if slowdown is None else np.repeat(np.array(slowdown)[:, None], len(apart), axis=1),
        None if slowdown is None else apart[..., 0],
        None if turn is None else np.array(turn, dtype=np.int32),
        None if sends_first is None else np.array(sends_first, dtype=bool),
    )
    return dataclasses.replace(problem, executor=executor)


def random_executor(rng: np.random.Generator, problem: Problem) -> Problem:
    """The problem under an executor with random figures that provoke ties."""
    shape = (problem.num_devices, problem.num_devices, 2)
    executor = ExecutorModel(  # type: ignore[call-arg]
        rng.choice([0.0, 0.5, 0.25], shape),
        rng.choice([0.0, 0.5, 0.25], shape),
        rng.choice([True, False], problem.num_ops),
        *(_random_contention(rng, problem) if rng.random() < 0.5 else (None, None)),
        _random_turns(rng, problem.num_ops) if rng.random() < 0.5 else None,
        rng.choice([True, False], problem.num_devices) if rng.random() < 0.5 else None,
    )
    return dataclasses.replace(problem, executor=executor)


def _random_turns(rng: np.random.Generator, num_ops: int) -> npt.NDArray[np.int32]:
    orders = [rng.permutation(num_ops) for _ in range(rng.integers(1, 3))]
    return np.array(orders, dtype=np.int32)


def _random_contention(
    rng: np.random.Generator, problem: Problem
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    shape = (problem.num_ops, problem.num_devices)
    shared = np.triu(rng.choice([True, False], (shape[1], shape[1])), 1)
    return rng.choice([0.0, 0.5, 1.0], shape), shared | shared.T
