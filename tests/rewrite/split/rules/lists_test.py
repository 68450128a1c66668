"""TensorLists in copies: what is put in and taken out of them is what the whole list holds."""

import numpy as np
import pytest
import tensorflow as tf

from rewrite.split.decision import Split
from rewrite.split.prove.structure.check_resharding import prove_joints
from rewrite.split.rules.list_elements import ListElements
from rewrite.split.states import WHOLE, Listed, Sharded
from tests.rewrite.split.run_step import run, split_step
from tests.rewrite.split.traced_steps import flat_step

raw = tf.raw_ops
BATCH = 5
SHAPE = tf.constant([BATCH, 2])


def reserved(count):
    return raw.TensorListReserve(element_shape=SHAPE, num_elements=count, element_dtype=tf.float32)


def set_item(handle, index, item):
    return raw.TensorListSetItem(input_handle=handle, index=index, item=item)


def grown(x):
    """A list of no elements that an item at place 2 makes longer."""
    return raw.TensorListSetItem(
        input_handle=reserved(0), index=2, item=x, resize_if_index_out_of_bounds=True
    )


def stack(handle, count=-1):
    return raw.TensorListStack(
        input_handle=handle, element_shape=SHAPE, element_dtype=tf.float32, num_elements=count
    )


def from_rows(x, axis):
    """A list of three elements, whose batch lies along an axis of them."""
    row = tf.stack([x, x + 1.0, x * 2.0]) if axis == 0 else tf.transpose(x)
    return raw.TensorListFromTensor(tensor=row, element_shape=tf.constant(-1))


def pushed(x):
    empty = raw.EmptyTensorList(element_shape=SHAPE, max_num_elements=-1, element_dtype=tf.float32)
    once = raw.TensorListPushBack(input_handle=empty, tensor=x)
    return raw.TensorListPushBack(input_handle=once, tensor=tf.zeros((BATCH, 2)))


def pop(handle):
    return raw.TensorListPopBack(
        input_handle=handle, element_shape=tf.constant(-1), element_dtype=tf.float32
    )


def gather(handle, indices):
    return raw.TensorListGather(
        input_handle=handle, indices=indices, element_shape=SHAPE, element_dtype=tf.float32
    )


def scattered(x):
    return raw.TensorListScatterV2(
        tensor=tf.stack([x, -x]), indices=[2, 0], element_shape=SHAPE, num_elements=3
    )


def item(handle, index):
    return raw.TensorListGetItem(
        input_handle=handle, index=index, element_shape=tf.constant(-1), element_dtype=tf.float32
    )


def added(x):
    return tf.add_n([set_item(reserved(2), 0, x), set_item(reserved(2), 1, x * 2.0)])


CASES = {
    "items that were left out": lambda x: stack(set_item(reserved(3), 1, x), 3),
    "rows": lambda x: item(from_rows(x, 0), 2),
    "rows across": lambda x: item(from_rows(x, 1), 1),
    "last": lambda x: pop(pop(pushed(x)).output_handle).tensor,
    "a whole element is cut": lambda x: pop(pushed(x)).tensor + x,
    "gather": lambda x: gather(scattered(x), [2, 0, 2]),
    "sum of lists": lambda x: stack(added(x)),
    "zeros": lambda x: stack(tf.zeros_like(set_item(reserved(1), 0, x))),
    "resized": lambda x: stack(raw.TensorListResize(input_handle=pushed(x), size=3)),
    "shape of what has grown": lambda x: x * tf.cast(tf.shape(stack(grown(x)))[0], tf.float32),
    "length": lambda x: x * tf.cast(raw.TensorListLength(input_handle=pushed(x)), tf.float32),
}


@pytest.mark.parametrize("name", CASES)
def test_lists_of_parts_hold_the_parts(name):
    flat = flat_step(CASES[name], [tf.TensorSpec((BATCH, 2), tf.float32, "x")], BATCH)
    feeds = {"x:0": np.random.default_rng(0).normal(size=(BATCH, 2)).astype(np.float32)}
    decisions, split = split_step(flat, BATCH, 3, {"x:0": 0})
    lists = [node for node in flat.graph_def.node if "TensorList" in node.op]
    assert all(isinstance(decisions.answer_of_op[node.name], Split) for node in lists)
    whole, parts = (run(each.graph_def, each.fetches, feeds)[0] for each in (flat, split))
    np.testing.assert_allclose(parts[0], whole[0], rtol=1e-6)
    prove_joints(flat, decisions, split, 3)


def test_a_list_that_something_needs_whole_stays_whole():
    def step(x):
        rows = from_rows(x, 0)
        return item(rows, 1), raw.TensorListConcatV2(
            input_handle=rows, element_shape=SHAPE, leading_dims=tf.constant([], tf.int64),
            element_dtype=tf.float32,
        ).tensor  # fmt: skip

    flat = flat_step(step, [tf.TensorSpec((BATCH, 2), tf.float32, "x")], BATCH)
    feeds = {"x:0": np.ones((BATCH, 2), np.float32)}
    decisions, split = split_step(flat, BATCH, 2, {"x:0": 0})
    [made] = [node.name for node in flat.graph_def.node if node.op == "TensorListFromTensor"]
    assert decisions.answer_of_op[made].reason == "its TensorList is needed whole"
    whole, parts = (run(each.graph_def, each.fetches, feeds)[0] for each in (flat, split))
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(other, one)


def test_what_is_put_in_says_how_a_list_is_cut():
    elements = ListElements()
    empty = elements.root("list")
    assert empty == Listed(None)
    assert elements.write(empty, Sharded(1)) == Listed(Sharded(1))
    assert elements.learn()
    assert elements.root("list") == Listed(Sharded(1))
    assert not elements.learn()


def test_a_list_of_elements_that_are_cut_in_two_ways_is_whole():
    elements = ListElements()
    once = elements.write(elements.root("list"), Sharded(1))
    elements.write(once, Sharded(0))
    assert elements.learn()
    elements.write(elements.root("list"), Sharded(0))
    assert elements.learn()
    assert elements.root("list") == WHOLE
    assert not elements.learn()


def test_a_list_that_holds_nothing_that_is_cut_is_whole():
    elements = ListElements()
    elements.write(elements.root("list"), WHOLE)
    assert elements.learn()
    assert elements.root("list") == WHOLE
