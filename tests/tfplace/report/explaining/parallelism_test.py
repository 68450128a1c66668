"""The kind of parallelism of hand-made placements of each kind."""

import dataclasses

import numpy as np
import pytest

from tests.builders import Machine, Op, build_problem
from tfplace.report.explaining import parallelism as kinds
from tfplace.report.explaining.parallelism import parallelism_of, parallelism_text

LAYERS, SHARDS = 8, 4


def training_step(num_shards=SHARDS, num_devices=5):
    """Each layer: a second forward, two backward for each shard, a sum and an update of no time."""
    ops = [Op("x", seconds=0.0, outputs=(1,))]
    ends = [f"/shard_{m}" for m in range(num_shards)] or [""]
    for layer in range(LAYERS):
        ops.append(Op(f"w{layer}", 0.0, outputs=(8,), alloc=(0,), persistent=8, colocation=layer))
        for end in ends:
            before = f"f{layer - 1}{end}:0" if layer else "x:0"
            ops.append(Op(f"f{layer}{end}", 1.0, (before, f"w{layer}:0"), (4,)))
    for layer in reversed(range(LAYERS)):
        for end in ends:
            before = f"f{layer}{end}:0" if layer == LAYERS - 1 else f"b{layer + 1}{end}:0"
            inputs = (before, f"f{layer}{end}:0", f"w{layer}:0")
            ops.append(Op(f"b{layer}{end}", 2.0, tuple(dict.fromkeys(inputs)), (8,)))
        terms = tuple(f"b{layer}{end}:0" for end in ends)
        ops.append(Op(f"sum{layer}", 0.0, terms, (8,)))
        update = (f"w{layer}:0", f"sum{layer}:0")
        ops.append(Op(f"update{layer}", 0.0, update, outputs=(), colocation=layer))
    return build_problem(ops, Machine(num_devices=num_devices))


STEP = training_step()


def place(where, problem=STEP):
    """i4[N]: `where(layer, shard)` says the device; whole ops are shard None."""
    placement = []
    for name in problem.graph.op_names:
        head, _, shard = name.partition("/shard_")
        layer = int("".join(filter(str.isdigit, head)) or 0)
        placement.append(where(layer, int(shard) if shard else None))
    return np.array(placement, dtype=np.int32)


def told(where, problem=STEP):
    found = parallelism_of(problem, place(where, problem))
    return found.kind, parallelism_text(found, problem)


def test_shard_i_on_device_i():
    spread = told(lambda layer, shard: 1 + (layer % 4 if shard is None else shard))
    assert spread == (
        kinds.DATA_PARALLEL,
        "data parallel over 4 GPUs, the variables spread over all",
    )
    kept = told(lambda layer, shard: 1 + (shard or 0))
    assert kept[1] == "data parallel over 4 GPUs, the variables on GPU:0"


def test_sixty_four_devices_have_little_each_and_are_used():
    problem = training_step(64, 65)
    told_of = told(lambda layer, shard: 1 + (layer if shard is None else shard), problem)
    assert told_of[0] == kinds.DATA_PARALLEL
    assert told_of[1].startswith("data parallel over 64 GPUs")


def test_several_shards_on_each_device():
    two = told(lambda layer, shard: 1 + (shard or 0) % 2)
    assert two == (
        kinds.DATA_PARALLEL,
        "data parallel over 2 GPUs, 2 shards on each (gradient accumulation), the variables on "
        "GPU:0",
    )
    uneven = told(lambda layer, shard: 2 if shard == 3 else 1)[1]
    assert uneven.startswith("data parallel over 2 GPUs (3 shards on GPU:0, 1 shard on GPU:1), ")


def test_mostly_data_parallel_says_how_much():
    def one_layer_together(layer, shard):
        return 1 + (shard or 0) if layer < 6 else 1

    kind, text = told(one_layer_together)
    assert kind == kinds.DATA_PARALLEL
    assert text == (
        "mostly data parallel over 4 GPUs, the variables on GPU:0: 81 % of the shards' work lies "
        "on the shard's own device"
    )


def test_one_device():
    assert told(lambda layer, shard: 1) == (
        kinds.ACCUMULATION,
        "all 4 shards on GPU:0 (gradient accumulation)",
    )


def test_pieces_of_weights_are_no_parts_of_a_batch():
    both = zip(STEP.graph.op_names, STEP.graph.op_types, strict=True)
    types = ["VarHandleOp" if name.startswith("f0/") else own for name, own in both]
    pieces = dataclasses.replace(STEP, graph=dataclasses.replace(STEP.graph, op_types=types))
    assert told(lambda layer, shard: 1, pieces) == (kinds.ONE_DEVICE, "")
    assert told(lambda layer, shard: 1 + (shard or 0), pieces)[0] == kinds.TENSOR_PARALLEL
    assert told(lambda layer, shard: 1 + (shard or 0) % 2 * 2 + layer % 2, pieces) == (
        kinds.TENSOR_PARALLEL,
        "tensor parallel over 4 GPUs, a piece of each weight that is cut in each group: "
        "GPU:0 + GPU:1; GPU:2 + GPU:3",
    )
    mixed = told(lambda layer, shard: 1 + ((shard or 0) + layer) % 4, pieces)
    assert mixed[0] == kinds.MIXED and "shard" not in mixed[1] and "its op's pieces" in mixed[1]


def test_stages():
    assert told(lambda layer, shard: 4 - layer // 2) == (
        kinds.PIPELINE,
        "a pipeline of 4 stages (GPU:3 → GPU:2 → GPU:1 → GPU:0) for 4 shards",
    )
    kind, text = told(lambda layer, shard: 2 if layer == 1 else 1 + layer // 4)
    assert kind == kinds.PIPELINE
    assert text.endswith("88 % of the shards' work lies with its stage")


def test_layers_in_no_order_are_no_pipeline():
    kind, text = told(lambda layer, shard: 1 + layer % 4)
    assert kind == kinds.MODEL_PARALLEL
    assert text == "model parallel over 4 GPUs, all shards of an op together"


def test_groups_of_devices():
    def pipelines(layer, shard):
        return 1 + 2 * ((shard or 0) // 2) + layer // 4

    assert told(pipelines) == (
        kinds.GROUPS,
        "data parallel in 2 groups of devices (GPU:0 + GPU:1; GPU:2 + GPU:3), each a pipeline of "
        "2 stages",
    )
    kind, text = told(lambda layer, shard: 1 + 2 * ((shard or 0) // 2) + layer % 2)
    assert kind == kinds.GROUPS and text.endswith("each model parallel over 2 devices")


def test_anything_else_is_a_mixture():
    def mixed(layer, shard):
        return 1 + ((shard or 0) + layer) % 4

    kind, text = told(mixed)
    assert kind == kinds.MIXED
    assert text == (
        "a mixture over 4 GPUs: 25 % of the shards' work lies on the device that does most for "
        "its shard, 25 % where most of its op's shards lie"
    )


def test_groups_of_unequal_size_are_a_mixture_too():
    def uneven(layer, shard):
        return {0: 1, 1: 1}.get(shard or 0, 2 + layer // 4)

    kind, text = told(uneven)
    assert kind == kinds.MIXED and text.startswith("a mixture over 3 GPUs: ")
    kind, text = told(lambda layer, shard: (shard or 0) if layer != 1 else 4)
    assert kind == kinds.DATA_PARALLEL
    assert text.startswith("mostly data parallel over 3 GPUs and a CPU, ")


def test_a_whole_step():
    whole = training_step(0)
    assert told(lambda layer, shard: 2, whole) == (kinds.ONE_DEVICE, "")
    assert told(lambda layer, shard: 1 + layer // 4, whole) == (
        kinds.MODEL_PARALLEL,
        "model parallel over 2 GPUs",
    )


def test_the_share_of_the_work_that_is_split_is_said_where_its_operations_are_counted():
    ops = [Op("a/shard_0", 2.0), Op("a/shard_1", 2.0), Op("b", 1.0)]
    problem = build_problem(ops, Machine(num_devices=3))
    found = parallelism_of(problem, np.array([1, 2, 1], np.int32))
    assert parallelism_text(found, problem) == "data parallel over 2 GPUs"
    np.testing.assert_array_equal(found.work, [[0, 2, 0], [0, 0, 2], [0, 1, 0]])


def test_where_whole_ops_lie_is_named_if_the_shards_lie_elsewhere():
    ops = [Op("a/shard_0", 2.0), Op("a/shard_1", 2.0), Op("b", 4.0)]
    problem = build_problem(ops, Machine(num_devices=3))
    found = parallelism_of(problem, np.array([1, 1, 2], np.int32))
    assert parallelism_text(found, problem) == (
        "both shards on GPU:0 (gradient accumulation); what is not split lies on GPU:1"
    )


@pytest.mark.parametrize("device", [0, 1])
def test_a_step_of_no_time(device):
    problem = build_problem([Op("a/shard_0", 0.0), Op("a/shard_1", 0.0)], Machine(num_devices=3))
    found = parallelism_of(problem, np.full(2, device, np.int32))
    assert found.kind == kinds.ACCUMULATION
