"""What is known of the op types that pass something on, hold something, or only order others.

TABLE has a row for each op type and a column for each question that some part of tfplace asks. An
`x` says yes; an op type without a row says no to everything. The sets below the table are its
columns, and say why the question is asked.
"""

from collections.abc import Mapping

TABLE = """
                        aliases no_launch inline elements value same handle trivial counts
Identity                x       x         x      all      x     x    x      x       x
RefIdentity             x       x         .      .        .     x    .      .       .
IdentityN               x       x         x      all      .     .    .      x       .
StopGradient            x       x         x      all      x     x    .      .       .
PreventGradient         x       x         x      all      x     x    .      .       .
Reshape                 x       x         x      0        .     .    .      .       .
Squeeze                 x       x         x      0        x     .    .      .       .
ExpandDims              x       x         x      0        .     .    .      .       .
EnsureShape             x       x         .      0        .     .    .      .       .
Bitcast                 x       x         .      .        .     .    .      .       .
CheckNumerics           x       x         .      .        .     .    .      .       .
Snapshot                x       .         .      all      .     .    .      .       .
PlaceholderWithDefault  x       x         .      all      .     .    .      .       .
ReadVariableOp          x       x         x      0        .     .    .      .       .
Assign                  x       .         .      .        .     .    .      .       .
AssignAdd               x       .         .      .        .     .    .      .       x
AssignSub               x       .         .      .        .     .    .      .       .
AssignAddVariableOp     .       .         .      .        .     .    .      .       x
Switch                  x       x         x      0        .     .    x      .       .
RefSwitch               x       x         .      0        .     .    x      .       .
_SwitchN                x       x         x      .        .     .    .      .       .
Merge                   x       x         x      all      .     .    .      .       .
RefMerge                x       x         .      .        .     .    .      .       .
Enter                   x       x         x      0        x     .    x      .       .
RefEnter                x       x         .      .        x     .    x      .       .
Exit                    x       x         x      0        .     .    .      .       .
RefExit                 x       x         .      .        .     .    .      .       .
NextIteration           x       x         x      .        .     .    .      .       .
RefNextIteration        x       x         .      .        .     .    .      .       .
LoopCond                .       x         x      .        .     .    .      .       .
_Arg                    x       x         x      .        .     .    .      .       .
_Retval                 x       x         x      .        .     .    .      .       .
Const                   .       x         x      .        .     .    .      x       .
NoOp                    .       x         x      .        .     .    .      x       x
ControlTrigger          .       x         .      .        .     .    .      .       .
Assert                  .       x         .      .        .     .    .      x       .
Placeholder             .       x         x      .        .     .    .      .       .
PlaceholderV2           .       x         .      .        .     .    .      .       .
VarHandleOp             .       x         x      .        .     .    .      .       .
VariableV2              .       x         x      .        .     .    .      .       .
Variable                .       x         x      .        .     .    .      .       .
VarIsInitializedOp      .       x         .      .        .     .    .      .       .
IsVariableInitialized   .       x         .      .        .     .    .      .       .
Shape                   .       x         x      .        .     .    .      .       .
ShapeN                  .       x         x      .        .     .    .      .       .
Size                    .       x         x      .        .     .    .      .       .
Rank                    .       x         x      .        .     .    .      .       .
BroadcastGradientArgs   .       .         x      .        .     .    .      .       .
ZerosLike               .       .         x      .        .     .    .      .       .
Cast                    .       .         .      0        x     .    .      .       .
Transpose               .       .         .      0        .     .    .      .       .
Pack                    .       .         .      all      .     .    .      .       .
Unpack                  .       .         .      0        .     .    .      .       .
Concat                  .       .         .      all      .     .    .      .       .
ConcatV2                .       .         .      all      .     .    .      .       .
ParallelConcat          .       .         .      all      .     .    .      .       .
DynamicStitch           .       .         .      all      .     .    .      .       .
DynamicPartition        .       .         .      0        .     .    .      .       .
Split                   .       .         .      1        .     .    .      .       .
SplitV                  .       .         .      0        .     .    .      .       .
Slice                   .       .         .      0        .     .    .      .       .
StridedSlice            .       .         .      0        .     .    .      .       .
Tile                    .       .         .      0        .     .    .      .       .
BroadcastTo             .       .         .      0        .     .    .      .       .
ReverseV2               .       .         .      0        .     .    .      .       .
ReverseSequence         .       .         .      0        .     .    .      .       .
Pad                     .       .         .      0        .     .    .      .       .
PadV2                   .       .         .      0        .     .    .      .       .
MirrorPad               .       .         .      0        .     .    .      .       .
Gather                  .       .         .      0        .     .    .      .       .
GatherV2                .       .         .      0        .     .    .      .       .
GatherNd                .       .         .      0        .     .    .      .       .
Unique                  .       .         .      0        .     .    .      .       .
UniqueV2                .       .         .      0        .     .    .      .       .
Select                  .       .         .      1,2      .     .    .      .       .
SelectV2                .       .         .      1,2      .     .    .      .       .
"""

_HEADER, *_ROWS = (line.split() for line in TABLE.strip().splitlines())


def _column(question: str) -> dict[str, str]:
    """{op type: what stands in the column}, rows that say no left out."""
    position = _HEADER.index(question) + 1
    return {row[0]: row[position] for row in _ROWS if row[position] != "."}


ALIASES = frozenset(_column("aliases"))
"""Their outputs are the buffer of an input or a variable, so that running them allocates nothing:
the op graph's `tensor_alloc_bytes` is 0 (the contract, section 6)."""

_UNARY = """
Abs Neg Inv Reciprocal Square Sqrt Rsqrt Round Exp Expm1 Log Log1p Sinh Cosh Tanh Asinh Acosh Atanh
Lgamma Digamma Erf Erfc Erfinv Ndtri Sigmoid Sin Cos Tan Asin Acos Atan Sign Floor Ceil Rint
LogicalNot Invert Relu Relu6 Elu Selu LeakyRelu Softplus Softsign Softmax LogSoftmax BiasAdd
BiasAddV1 FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 ClipByValue MatrixBandPart MatrixSetDiag
MatrixSetDiagV2 MatrixSetDiagV3 ZerosLike OnesLike Snapshot
"""
_BINARY = """
Add AddV2 Sub Mul MulNoNan Div RealDiv TruncateDiv DivNoNan FloorDiv Mod FloorMod TruncateMod Pow
Xdivy Xlogy Xlog1py Maximum Minimum SquaredDifference Atan2 Igamma Igammac Zeta Polygamma LogicalAnd
LogicalOr BitwiseAnd BitwiseOr BitwiseXor LeftShift RightShift TanhGrad SigmoidGrad SqrtGrad
RsqrtGrad InvGrad ReciprocalGrad ReluGrad Relu6Grad EluGrad SeluGrad LeakyReluGrad SoftplusGrad
SoftsignGrad
"""

TAKES_OVER: Mapping[str, tuple[int, tuple[int, ...] | None]] = {
    **dict.fromkeys(_UNARY.split(), (0, (0,))),
    **dict.fromkeys(_BINARY.split(), (0, (0, 1))),
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

PYTHON = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
"""They call a function of the process that made the graph, which no other process has."""

WRITES = frozenset(
    "WriteFile Save SaveSlices SaveV2 MergeV2Checkpoints PrintV2 CreateSummaryFileWriter "
    "CreateSummaryDbWriter CloseSummaryWriter FlushSummaryWriter ImportEvent WriteSummary "
    "WriteScalarSummary WriteHistogramSummary WriteImageSummary WriteAudioSummary "
    "WriteGraphSummary WriteRawProtoSummary StatsAggregatorSetSummaryWriter DatasetToTFRecord "
    "ExperimentalDatasetToTFRecord SaveDataset DistributedSave".split()
)
"""They leave something outside of the process, and have no outputs. Reading is no effect."""

REACHES_OUT = frozenset(
    "ReadFile MatchingFiles GenerateVocabRemapping DecodeProtoV2 EncodeProto DebugIdentity "
    "DebugIdentityV2 DebugIdentityV3 DebugNanCount DebugNumericSummary DebugNumericSummaryV2 "
    "PyFuncStateless".split()
)
"""They read or write outside of the process, though TensorFlow calls them stateless."""

WRITES_AND_HANDS_ON = frozenset(
    "Print DebugIdentity DebugIdentityV2 DebugIdentityV3 SaveDatasetV2 SnapshotDataset "
    "SnapshotDatasetV2 CacheDataset CacheDatasetV2".split()
)
"""They leave something outside of the process; what comes out is input 0, of the last five the
elements of that data set. The last two do so only where they have a file's name."""
