"""Says which ops have a kernel on which device type, and which kernels launch nothing.

The running TensorFlow's kernel registry answers. A CUDA build registers its GPU kernels also where
no GPU is present, but a CPU-only build has none of them. For that case the GPU registrations of the
CUDA build of TensorFlow 2.21.0 lie beside this file (gpu_kernels.txt, written by
`python -m graphs.pricing.kernels`). They are used instead, and the report says so.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import graphs.late_tensorflow as tf
from graphs import op_types
from graphs.building.op_outputs import known_definition
from graphs.by_key import by_key
from graphs.protos import AttrValue, NodeDef

SHIPPED_GPU_KERNELS = pathlib.Path(__file__).with_name("gpu_kernels.txt")


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One registration of a kernel.

    Attributes:
      device_type: "CPU", "GPU", or "DEFAULT" for every device.
      allowed: {attribute: the dtypes, or other values as text, that it may have}.
      host_arguments: names of arguments that live in host memory on a GPU.
      label: the `_kernel` attribute that asks for it; empty for ordinary kernels.
    """

    device_type: str
    allowed: Mapping[str, frozenset[str]]
    host_arguments: frozenset[str]
    label: str = ""

    def runs_on(self, device_type: str) -> bool:
        return self.device_type in (device_type, "DEFAULT")


@dataclasses.dataclass(frozen=True)
class KernelTable:
    """All kernels of a build of TensorFlow.

    Attributes:
      of_op: {op type: its kernels}.
      source: where they are from, for reports.
    """

    of_op: Mapping[str, Sequence[Kernel]]
    source: str
    # {kind of node: its kernel}. As far as kernels can tell, a graph has few kinds of nodes.
    _matched: dict[tuple[object, ...], Kernel | None] = dataclasses.field(
        default_factory=dict, compare=False, repr=False
    )
    _names: dict[str, tuple[str, ...]] = dataclasses.field(
        default_factory=dict, compare=False, repr=False
    )

    def matching(self, node: NodeDef, device_type: str) -> Kernel | None:
        """The kernel that a NodeDef would get on a device type; None where there is none."""
        if node.op not in self.of_op:
            return None
        given = tuple(
            node.attr[name].SerializeToString() if name in node.attr else None
            for name in self._attributes(node.op)
        )
        key = (device_type, node.op, _label(node), given)
        if key not in self._matched:
            self._matched[key] = self._first_matching(node, device_type)
        return self._matched[key]

    def _first_matching(self, node: NodeDef, device_type: str) -> Kernel | None:
        values = None
        # One for every device counts only where no other matches.
        for kernel in sorted(self.of_op.get(node.op, ()), key=lambda k: k.device_type == "DEFAULT"):
            if not kernel.runs_on(device_type) or kernel.label != _label(node):
                continue
            if values is None:
                values = _attribute_values(node, self._attributes(node.op))
            if all(values.get(name, _NONE) <= types for name, types in kernel.allowed.items()):
                return kernel
        return None

    def _attributes(self, op: str) -> tuple[str, ...]:
        """The attributes in which the kernels of an op type differ."""
        if op not in self._names:
            names = {name for kernel in self.of_op[op] for name in kernel.allowed}
            self._names[op] = tuple(sorted(names))
        return self._names[op]

    def launches(self, node: NodeDef, device_type: str) -> bool:
        """Whether running the node launches a kernel on a GPU: not for buffers and host values."""
        kernel = self.matching(node, device_type)
        if device_type != "GPU" or kernel is None or node.op in op_types.NO_LAUNCH:
            return False
        outputs = _output_arguments(node.op)
        return not outputs or not outputs <= kernel.host_arguments


_NONE = frozenset({"(not given)"})


@functools.cache
def kernel_table() -> KernelTable:
    """The running TensorFlow's kernels, and the shipped GPU kernels where it has none."""
    table = by_key(_registered())
    if any(kernel.device_type == "GPU" for kernel in table.get("MatMul", ())):
        return KernelTable(table, f"the kernels of TensorFlow {tf.__version__}")
    for op, kernel in read_kernels(SHIPPED_GPU_KERNELS.read_text(encoding="utf-8").splitlines()):
        table.setdefault(op, []).append(kernel)
    return KernelTable(
        table,
        f"TensorFlow {tf.__version__} here has no GPU kernels; those of the CUDA build of "
        "2.21.0 were assumed",
    )


def read_kernels(lines: Iterable[str]) -> Iterator[tuple[str, Kernel]]:
    """Reads `written_kernels` lines: "Op DEVICE label attr=dtype,dtype;... host,arguments"."""
    for line in lines:
        if line and not line.startswith("#"):
            op, device_type, label, constraints, host = line.split(" ")
            allowed = {
                name: frozenset(types.split(","))
                for name, _, types in (c.partition("=") for c in constraints.split(";") if c)
            }
            yield op, Kernel(device_type, allowed, frozenset(filter(None, host.split(","))), label)


_Merged = tuple[str, str, str, tuple[tuple[str, str], ...], str, tuple[str, ...]]


def written_kernels(kernels: Iterable[tuple[str, Kernel]]) -> list[str]:
    """One line per kernel, sorted; kernels that differ in one attribute's dtypes become one."""
    merged: dict[_Merged, dict[str, set[str]]] = {}
    for op, kernel in kernels:
        fixed = tuple(sorted((n, ",".join(sorted(t))) for n, t in kernel.allowed.items()))
        first, rest = fixed[:1], fixed[1:]
        key = (op, kernel.device_type, kernel.label, rest, ",".join(sorted(kernel.host_arguments)))
        into = merged.setdefault((*key, tuple(n for n, _ in first)), {})
        for name, types in first:
            into.setdefault(name, set()).update(types.split(","))
    lines = []
    for (op, device_type, label, rest, host, _), first_types in merged.items():
        constraints = [f"{n}={','.join(sorted(t))}" for n, t in first_types.items()]
        constraints += [f"{n}={t}" for n, t in rest]
        lines.append(f"{op} {device_type} {label} {';'.join(constraints)} {host}")
    return sorted(lines)


def _registered() -> Iterator[tuple[str, Kernel]]:
    from tensorflow.python.framework import kernels

    for definition in kernels.get_all_registered_kernels().kernel:
        if definition.device_type in ("CPU", "GPU", "DEFAULT"):
            allowed = {c.name: _values(c.allowed_values) for c in definition.constraint}
            host = frozenset(definition.host_memory_arg)
            yield definition.op, Kernel(definition.device_type, allowed, host, definition.label)


@functools.cache
def _dtype_name(number: int) -> str:
    try:
        return str(tf.as_dtype(number).base_dtype.name)
    except TypeError:  # the model is damaged; no kernel takes such a type
        return f"type {number}"


def _values(value: AttrValue) -> frozenset[str]:
    """The value or values of an AttrValue as text, dtypes by their names."""
    kind = value.WhichOneof("value")
    items = value.list if kind == "list" else value
    if kind == "list":
        texts = [*map(_dtype_name, items.type), *(s.decode() for s in items.s)]
        return frozenset([*texts, *map(str, items.i), *map(str, items.b)])
    if kind == "type":
        return frozenset({_dtype_name(value.type)})
    return frozenset({value.s.decode() if kind == "s" else str(getattr(value, kind))})


def _label(node: NodeDef) -> str:
    return node.attr["_kernel"].s.decode() if "_kernel" in node.attr else ""


def _attribute_values(node: NodeDef, names: Iterable[str]) -> dict[str, frozenset[str]]:
    """{attribute: its values}; the op's default where the node leaves an attribute out."""
    values = {}
    for name in names:
        value = node.attr[name] if name in node.attr else _default(node.op, name)
        if value is not None:
            values[name] = _values(value)
    return values


@functools.cache
def _default(op: str, name: str) -> AttrValue:
    definition = known_definition(op)
    for attribute in definition.attr if definition else ():
        if attribute.name == name and attribute.HasField("default_value"):
            return attribute.default_value
    return None


@functools.cache
def _output_arguments(op: str) -> frozenset[str]:
    definition = known_definition(op)
    return frozenset(argument.name for argument in definition.output_arg) if definition else _NONE


if __name__ == "__main__":
    import tensorflow

    print(f"# GPU kernels registered by the CUDA build of TensorFlow {tensorflow.__version__}")
    for text in written_kernels((op, k) for op, k in _registered() if k.device_type == "GPU"):
        print(text)
