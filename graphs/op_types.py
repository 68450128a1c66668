"""What is known of the op types that pass something on, hold something, or only order others.

op_types.txt has a row for each op type and a column for each question that some part of tfplace
asks. An `x` says yes; an op type without a row says no to everything. The sets below are its
columns, and say why the question is asked.
"""

from collections.abc import Mapping

from graphs.host.text_table import table_rows

_HEADER, *_ROWS = table_rows(__file__)


def _column(question: str) -> dict[str, str]:
    """{op type: what stands in the column}, rows that say no left out."""
    position = _HEADER.index(question) + 1
    return {row[0]: row[position] for row in _ROWS if row[position] != "."}


def listed(name: str) -> frozenset[str]:
    """The op types of a set of op_sets.txt."""
    rows = table_rows(__file__, "op_sets.txt")
    return frozenset(op_type for row in rows if row[0] == name for op_type in row[1:])


ALIASES = frozenset(_column("aliases"))
"""Their outputs are the buffer of an input or a variable, so that running them allocates nothing:
the op graph's `tensor_alloc_bytes` is 0 (the contract, section 6)."""


TAKES_OVER: Mapping[str, tuple[int, tuple[int, ...] | None]] = {
    **dict.fromkeys(listed("unary"), (0, (0,))),
    **dict.fromkeys(listed("binary"), (0, (0, 1))),
    **dict.fromkeys(("AddN", "AccumulateNV2"), (0, None)),
    **dict.fromkeys(("Select", "SelectV2"), (0, (1, 2))),
    "SoftmaxCrossEntropyWithLogits": (1, (0,)),
    "SparseSoftmaxCrossEntropyWithLogits": (1, (0,)),
}
"""{op type: an output, and positions of the inputs of which it takes over a buffer of its own dtype
and size that nothing else needs; None for all of them}: `OpKernelContext::forward_input` of its
kernels (the contract, section 6, rule 6)."""

_OF_LISTS = "Reserve Resize Length ElementShape PushBack PopBack SetItem GetItem ConcatLists"

NO_LAUNCH = frozenset(_column("no_launch")) | {
    "EmptyTensorList",
    *(f"TensorList{does}" for does in _OF_LISTS.split()),
}
"""On a GPU they launch no kernel: they only hand a buffer on, or do nothing, or answer on the host.
So they take no time (`graphs/pricing`). Lists hold buffers; what joins these copies."""

INLINE = frozenset(_column("inline"))
"""Their CPU kernels say that they are cheap (`OpKernel::IsExpensive` is false): the executor runs
them at once instead of queueing them. Its other kernels count as expensive for about 90 steps,
whatever they take: the estimate starts at 1e8 cycles and falls by a tenth a run."""

ELEMENTS: Mapping[str, tuple[int, ...] | None] = {
    op_type: None if inputs == "all" else tuple(map(int, inputs.split(",")))
    for op_type, inputs in _column("elements").items()
}
"""{op type: positions of the inputs whose elements come out again}; None for all of them. They may
come out in another place, several times, or not all. So what the elements of a made-up input may
be is found by following them to the op that reads them."""

VALUE = frozenset(_column("value"))
"""The value that comes out is that of input 0, in a loop in every iteration; its dtype, and
dimensions of size 1, may differ. So the value of a constant is known behind them."""

SAME = frozenset(_column("same"))
"""What comes out is input 0 itself, on the same side of every loop and branch. So a counter, an
argument of a function or a variable is followed through them to where it comes from."""

HANDLE = frozenset(_column("handle"))
"""A variable's handle goes in and comes out, into loops and branches too. So the variable, and with
it the shape, of what they hand on is known."""

TRIVIAL = frozenset(_column("trivial"))
"""A conditional's branches that consist of these have nothing to place: they assert something, or
hand constants and inputs on. So the conditional stays whole."""

COUNTS = frozenset(_column("counts"))
"""What groups an optimizer's updates, as tf.group does, or counts them, as the increment of the
global step does. So the training op is found as the last one that waits for most updates."""

VARIABLES = frozenset({"VarHandleOp", "VariableV2", "Variable"})
VARIABLES_AND_TEMPORARY = VARIABLES | {"TemporaryVariable"}
MUST_BE_FED = frozenset({"Placeholder", "PlaceholderV2"})
PLACEHOLDERS = MUST_BE_FED | {"PlaceholderWithDefault"}
CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall", "RemoteCall"})
LOOPS = frozenset({"While", "StatelessWhile"})
CONDITIONALS = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
ENTER = frozenset({"Enter", "RefEnter"})
EXIT = frozenset({"Exit", "RefExit"})
SWITCHES = frozenset({"Switch", "RefSwitch", "_SwitchN"})
MERGES = frozenset({"Merge", "RefMerge"})
NEXT_ITERATION = frozenset({"NextIteration", "RefNextIteration"})
CONTROL_FLOW = ENTER | EXIT | SWITCHES | MERGES | NEXT_ITERATION

PYTHON = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
"""They call a function of the process that made the graph, which no other process has."""

WRITES = listed("writes")
"""They leave something outside of the process, and have no outputs. Reading is no effect."""

REACHES_OUT = listed("reaches_out")
"""They read or write outside of the process, though TensorFlow calls them stateless."""

WRITES_AND_HANDS_ON = listed("hands_on")
"""They leave something outside of the process; what comes out is input 0, of the last five the
elements of that data set. The last two do so only where they have a file's name."""

POLYNOMIAL = listed("polynomial")
"""They add, multiply, compare and move what they are given, and nothing else: of whole numbers
their kernels make exact ones in float64, in whatever order they add them up."""
