"""Which ops have kernels where."""

import dataclasses

import pytest
import tensorflow as tf

from graphs.pricing import kernels
from graphs.pricing.kernels import Kernel, KernelTable, kernel_table, read_kernels, written_kernels

SHIPPED = kernels.SHIPPED_GPU_KERNELS.read_text(encoding="utf-8").splitlines()


def _node(op, **types):
    node = tf.compat.v1.NodeDef(name="n", op=op)
    for name, value in types.items():
        node.attr[name].type = value.as_datatype_enum
    return node


@pytest.fixture(params=["registered", "shipped"])
def table(request):
    """The running TensorFlow's table, and the one that a CPU-only build would get."""
    if request.param == "registered":
        return kernel_table()
    shipped: dict[str, list[Kernel]] = {}
    for op, kernel in read_kernels(SHIPPED):
        shipped.setdefault(op, []).append(kernel)
    cpu = {
        op: [k for k in own if k.device_type != "GPU"] for op, own in kernel_table().of_op.items()
    }
    both = {op: [*cpu.get(op, ()), *shipped.get(op, ())] for op in {*cpu, *shipped}}
    return KernelTable(both, "shipped")


@pytest.mark.parametrize(
    ("node", "cpu", "gpu", "launches"),
    [
        (_node("MatMul", T=tf.float32), True, True, True),
        (_node("MatMul", T=tf.int32), True, False, False),
        (_node("Const", dtype=tf.string), True, False, False),
        (_node("Const", dtype=tf.int32), True, True, False),
        (_node("FloorMod", T=tf.int32), True, True, False),
        (_node("FloorMod", T=tf.float32), True, True, True),
        (_node("Identity", T=tf.float32), True, True, False),
        (_node("NoOp"), True, True, False),
        (_node("HashTableV2", key_dtype=tf.string, value_dtype=tf.int64), True, False, False),
        (_node("DecodeJpeg"), True, False, False),
        (_node("CudnnRNN", T=tf.float32), False, True, True),
    ],
)
def test_known_ops(table, node, cpu, gpu, launches):
    assert (table.matching(node, "CPU") is not None) == cpu
    assert (table.matching(node, "GPU") is not None) == gpu
    assert table.launches(node, "GPU") == launches
    assert not table.launches(node, "CPU")


def test_attributes_left_out_have_their_defaults():
    # GatherNd's `bad_indices_policy` is a string that kernels constrain; "" is its default.
    node = _node("GatherNd", Tparams=tf.float32, Tindices=tf.int32)
    assert kernel_table().matching(node, "GPU") is not None
    node.attr["bad_indices_policy"].s = b"ERROR"
    assert kernel_table().matching(node, "CPU") is not None
    assert kernel_table().matching(node, "GPU") is None


def test_labelled_kernels_are_for_those_who_ask():
    plain = Kernel("GPU", {}, frozenset())
    special = dataclasses.replace(plain, label="special")
    table = KernelTable({"Mine": [special]}, "test")
    node = _node("Mine")
    assert table.matching(node, "GPU") is None
    node.attr["_kernel"].s = b"special"
    assert table.matching(node, "GPU") == special


def test_lines_say_what_the_kernels_say():
    def kernel(**allowed):
        return Kernel("GPU", {k: frozenset(v) for k, v in allowed.items()}, frozenset({"x"}))

    separate = [
        ("Op", kernel(T={"float32"}, U={"int32"})),
        ("Op", kernel(T={"float64"}, U={"int32"})),
        ("Op", kernel(T={"float64"}, U={"int64"})),
        ("None", Kernel("GPU", {}, frozenset(), "slow")),
    ]
    lines = written_kernels(separate)
    assert lines == [
        "None GPU slow  ",
        "Op GPU  T=float32,float64;U=int32 x",
        "Op GPU  T=float64;U=int64 x",
    ]
    assert written_kernels(read_kernels(lines)) == lines


def test_shipped_kernels_are_those_of_the_build_they_name():
    if not any(k.device_type == "GPU" for k in kernel_table().of_op["MatMul"]):
        pytest.skip("this TensorFlow has no GPU kernels to compare with")
    if f"TensorFlow {tf.__version__}" not in SHIPPED[0]:
        pytest.skip("this is another TensorFlow than the shipped kernels are from")
    registered = (
        (op, k) for op, own in kernel_table().of_op.items() for k in own if k.device_type == "GPU"
    )
    assert written_kernels(registered) == SHIPPED[1:]


def test_a_kernel_for_every_device_counts_where_no_other_matches():
    """`Unique` has both in TensorFlow 2.21; the one for every device works in host memory."""
    everywhere = Kernel("DEFAULT", {}, frozenset({"x", "y", "idx"}))
    on_gpu = Kernel("GPU", {"T": frozenset({"float32"})}, frozenset())
    for kernels_of_op in ([everywhere, on_gpu], [on_gpu, everywhere]):
        both = KernelTable({"Unique": kernels_of_op}, "")
        assert both.launches(_node("Unique", T=tf.float32), "GPU")
        assert not both.launches(_node("Unique", T=tf.string), "GPU")
        assert both.matching(_node("Unique", T=tf.float32), "CPU") is everywhere
