"""A placement as a Python table: as short as it can be, and each op gets its device by it."""

import itertools
import random

import pytest
import tensorflow as tf

from graphs.loading.sniff import sniff
from tfplace.report.files import device_of_scope, placement_script

CPU, ONE, TWO = "/device:CPU:0", "/device:GPU:0", "/device:GPU:1"


def executed(script):
    known = {}
    exec(compile(script, "placement.py", "exec"), known)
    return known["device_of"]


@pytest.mark.parametrize(
    ("device_of_op", "expected"),
    [
        ({"a": ONE, "b/c": ONE}, {"": (ONE, 2)}),
        (
            {"in": CPU, "l0/x": ONE, "l0/y": ONE, "l1/x": TWO, "l1/y": TWO, "l1/step/z": ONE,
             "l2/x": TWO},
            {"": (TWO, 3), "in": (CPU, 1), "l0/": (ONE, 2), "l1/step/": (ONE, 1)},
        ),
        ({"a": CPU, "a/b": ONE, "a/c": ONE}, {"": (ONE, 2), "a": (CPU, 1)}),
    ],
)  # fmt: skip
def test_a_table_has_the_fewest_entries(device_of_op, expected):
    assert device_of_scope(device_of_op) == expected


def test_no_shorter_table_gives_all_ops_their_devices():
    rng = random.Random(3)
    names = ["a/x", "a/y", "a/b/x", "a/b/y", "c/x", "z"]
    keys = ["", "a/", "a/b/", "c/", *names]
    for _ in range(20):
        wanted = {name: rng.choice((CPU, ONE)) for name in names}
        table = device_of_scope(wanted)
        for size in range(1, len(table)):
            for chosen in itertools.combinations(keys, size):
                for devices in itertools.product((CPU, ONE), repeat=size):
                    entries = dict(zip(chosen, devices, strict=True))
                    found = {
                        name: next(
                            (entries[k] for k in sorted(entries, key=len, reverse=True)
                             if k == name or (name.startswith(k) and (not k or k[-1] == "/"))),
                            None,
                        )
                        for name in names
                    }  # fmt: skip
                    assert found != wanted, (entries, table)


def test_random_placements_are_kept_exactly():
    rng = random.Random(0)
    parts = ("a", "b", "c")
    names = {"/".join(rng.choices(parts, k=rng.randint(1, 4))) for _ in range(200)}
    device_of_op = {name: rng.choice((CPU, ONE, TWO)) for name in names}
    device_of = executed(placement_script(device_of_op, 'my "model"\n', "k80x2"))
    for name, device in device_of_op.items():
        assert device_of(type("Op", (), {"name": name})) == device


def test_a_graph_that_is_built_with_it_is_placed_as_it_was_written(tiny_rnnlm):
    graph_def = sniff(tiny_rnnlm).proto
    for node in graph_def.node:  # this placement tears groups apart
        node.attr.pop("_class", None)
    wanted = {node.name: TWO if "lstm_1" in node.name else ONE for node in graph_def.node}
    script = placement_script(wanted, "m", "k80x2")
    assert len(script.splitlines()) < len(wanted) / 5
    with tf.Graph().as_default() as graph, tf.compat.v1.device(executed(script)):
        tf.import_graph_def(graph_def, name="")
    assert {op.name: op.device for op in graph.get_operations()} == wanted
