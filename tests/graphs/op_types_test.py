"""The table of op types: every column is the exact set that its question has."""

import pytest

from graphs import op_types
from graphs.host.text_table import table_rows

# All of them. Whoever changes a set changes prices, memory, feeds or runs of real models.
COLUMNS = {
    "ALIASES": (
        "ReadVariableOp Identity IdentityN Reshape Squeeze ExpandDims StopGradient "
        "PreventGradient CheckNumerics Bitcast Switch RefSwitch _SwitchN Merge RefMerge Enter "
        "RefEnter Exit RefExit NextIteration RefNextIteration Assign AssignAdd AssignSub "
        "RefIdentity PlaceholderWithDefault Snapshot EnsureShape _Arg _Retval"
    ),
    "NO_LAUNCH": (
        "NoOp Const Identity IdentityN Reshape Squeeze ExpandDims StopGradient PreventGradient "
        "Bitcast EnsureShape Placeholder PlaceholderV2 PlaceholderWithDefault VarHandleOp "
        "VariableV2 Variable ReadVariableOp RefIdentity ControlTrigger Switch RefSwitch _SwitchN "
        "Merge RefMerge Enter RefEnter Exit RefExit NextIteration RefNextIteration LoopCond Shape "
        "ShapeN Size Rank _Arg _Retval VarIsInitializedOp IsVariableInitialized Assert "
        "CheckNumerics EmptyTensorList TensorListReserve TensorListResize TensorListLength "
        "TensorListElementShape TensorListPushBack TensorListPopBack TensorListSetItem "
        "TensorListGetItem TensorListConcatLists"
    ),
    "INLINE": (
        "Const Identity IdentityN Reshape Shape ShapeN Rank Size NoOp VarHandleOp ReadVariableOp "
        "ExpandDims Squeeze StopGradient PreventGradient Switch Merge Enter Exit NextIteration "
        "LoopCond _SwitchN _Arg _Retval Placeholder VariableV2 Variable BroadcastGradientArgs "
        "ZerosLike"
    ),
    "VALUE": "Identity Cast Enter RefEnter StopGradient PreventGradient Squeeze",
    "SAME": "Identity RefIdentity StopGradient PreventGradient",
    "HANDLE": "Identity Enter RefEnter Switch RefSwitch",
    "TRIVIAL": "Assert Const Identity IdentityN NoOp",
    "COUNTS": "NoOp AssignAdd AssignAddVariableOp Identity",
}
ELEMENTS = {
    None: (
        "Identity IdentityN StopGradient PreventGradient PlaceholderWithDefault Snapshot Pack "
        "ConcatV2 Concat ParallelConcat DynamicStitch Merge"
    ),
    (0,): (
        "Cast Reshape Transpose ExpandDims Squeeze EnsureShape Unpack SplitV StridedSlice Slice "
        "Tile BroadcastTo ReverseV2 ReverseSequence Pad PadV2 MirrorPad GatherV2 Gather GatherNd "
        "DynamicPartition Unique UniqueV2 Switch RefSwitch Enter Exit ReadVariableOp"
    ),
    (1,): "Split",
    (1, 2): "Select SelectV2",
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_has_exactly_its_op_types(name):
    assert getattr(op_types, name) == set(COLUMNS[name].split())


def test_elements_come_from_exactly_these_inputs():
    assert dict(op_types.ELEMENTS) == {
        op_type: inputs for inputs, types in ELEMENTS.items() for op_type in types.split()
    }


@pytest.mark.parametrize(
    ("name", "members", "others"),
    [
        # A reshape shares its input's buffer; a cast writes a new one; a constant's is kept.
        ("ALIASES", ["Reshape", "Switch"], ["Cast", "Const", "MatMul"]),
        # A shape is answered on the host; an assignment copies on the device.
        ("NO_LAUNCH", ["Shape", "Const"], ["Assign", "Snapshot", "Cast"]),
        # IsExpensive is false for these kernels; that of references to variables says true.
        ("INLINE", ["ZerosLike", "Merge"], ["RefMerge", "PlaceholderV2", "Cast"]),
        # A loop's constant input has one value in all iterations; a Merge's changes.
        ("VALUE", ["Cast", "Enter"], ["Merge", "NextIteration", "Reshape"]),
        # What comes out of Enter is on the other side of the loop's boundary.
        ("SAME", ["Identity", "RefIdentity"], ["Enter", "Switch", "Cast"]),
        # A handle goes into loops and branches; nothing merges handles.
        ("HANDLE", ["Enter", "Switch"], ["Merge", "ReadVariableOp"]),
        ("TRIVIAL", ["Assert", "NoOp"], ["Cast", "StopGradient"]),
        # A metric's AssignAdd counts; a gradient's AssignSub is an update itself.
        ("COUNTS", ["AssignAdd", "NoOp"], ["AssignSub", "IdentityN"]),
        ("ELEMENTS", ["GatherV2", "Select"], ["MatMul", "Bitcast", "OneHot"]),
    ],
)
def test_a_few_that_are_in_a_column_and_a_few_that_are_not(name, members, others):
    column = getattr(op_types, name)
    assert all(op_type in column for op_type in members)
    assert not any(op_type in column for op_type in others)


def test_every_row_stands_once_and_answers_every_question():
    header, *rows = table_rows(op_types.__file__)
    assert {len(row) for row in rows} == {len(header) + 1}
    assert len({row[0] for row in rows}) == len(rows)
    marks = {mark for row in rows for mark in row[1:]}
    assert marks == {"x", ".", "all", "0", "1", "1,2"}


def test_the_kinds_of_op_types():
    assert {"PlaceholderWithDefault"} == op_types.PLACEHOLDERS - op_types.MUST_BE_FED
    assert {"TemporaryVariable"} == op_types.VARIABLES_AND_TEMPORARY - op_types.VARIABLES
    kinds = [op_types.VARIABLES, op_types.PLACEHOLDERS, op_types.CALLS, op_types.LOOPS]
    kinds += [op_types.CONDITIONALS, op_types.ENTER, op_types.EXIT, op_types.NEXT_ITERATION]
    assert len(frozenset.union(*kinds)) == sum(map(len, kinds))  # no op type is of two kinds
