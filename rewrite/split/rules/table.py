"""One rule for each op type. An op type that is not here stays whole."""

import functools
from collections.abc import Callable, Mapping

from rewrite.split.decision import Answer
from rewrite.split.rules import batch_norm as norms
from rewrite.split.rules import (
    contractions,
    elementwise,
    layout,
    reductions,
    segments,
    slicing,
    special,
)
from rewrite.split.rules.by_table import LEADING, LETTERS, by_leading, by_letters
from rewrite.split.rules.op_view import OpView

Rule = Callable[[OpView], Answer]

_ELEMENTWISE = """
Abs Acos Acosh Asin Asinh Atan Atan2 Atanh Ceil Cos Cosh Digamma Elu EluGrad Equal Erf Erfc Erfinv
Exp Expm1 Floor FloorDiv FloorMod Greater GreaterEqual Inv InvGrad IsFinite IsInf IsNan LeakyRelu
LeakyReluGrad Less LessEqual Lgamma Log Log1p LogicalAnd LogicalNot LogicalOr Maximum Minimum Mod
Mul MulNoNan NotEqual Pow RealDiv Reciprocal ReciprocalGrad Relu Relu6 Relu6Grad ReluGrad Rint Round
Rsqrt RsqrtGrad Selu SeluGrad SelectV2 Sigmoid SigmoidGrad Sign Sin Sinh Softplus SoftplusGrad
Softsign SoftsignGrad Sqrt SqrtGrad Square SquaredDifference Tan Tanh TanhGrad TruncateDiv
TruncateMod Xdivy Xlogy Div DivNoNan ClipByValue ZerosLike OnesLike CheckNumerics Cast Xlog1py
BitwiseAnd
BitwiseOr BitwiseXor Angle ApproximateEqual BesselI0 BesselI0e BesselI1 BesselI1e BesselJ0 BesselJ1
BesselK0 BesselK0e BesselK1 BesselK1e BesselY0 BesselY1 Betainc Bucketize Complex ComplexAbs Conj
Dawsn Expint FakeQuantWithMinMaxArgs FakeQuantWithMinMaxArgsGradient FakeQuantWithMinMaxVars
FakeQuantWithMinMaxVarsPerChannel FresnelCos FresnelSin Igamma IgammaGradA Igammac Imag Invert
LeftShift LogicalXor Ndtri NextAfter Polygamma PopulationCount Real RightShift Spence Zeta
DebugGradientIdentity
AsString RegexFullMatch RegexReplace StaticRegexFullMatch StaticRegexReplace StringLength
StringLower StringStrip StringToHashBucket StringToHashBucketFast StringToHashBucketStrong
StringToNumber StringUpper
"""
_ADDITIVE = """
Add AddN AddV2 Identity Neg Snapshot StopGradient PreventGradient Sub
"""
_IMAGES = """
AvgPool AvgPool3D LRN LRNGrad MaxPool MaxPoolV2 MaxPool3D MaxPoolGrad MaxPoolGradV2 MaxPoolGradGrad
MaxPool3DGrad ResizeBilinear ResizeNearestNeighbor ResizeBicubic ResizeBilinearGrad
"""
_UPDATES = """
ResourceScatterAdd ResourceScatterSub ResourceScatterUpdate ResourceScatterMul ResourceScatterDiv
ResourceScatterMin ResourceScatterMax ResourceScatterNdAdd ResourceScatterNdSub
ResourceScatterNdUpdate ResourceSparseApplyAdadelta ResourceSparseApplyAdagrad
ResourceSparseApplyAdagradV2 ResourceSparseApplyAdagradDA ResourceSparseApplyCenteredRMSProp
ResourceSparseApplyFtrl ResourceSparseApplyFtrlV2 ResourceSparseApplyKerasMomentum
ResourceSparseApplyMomentum ResourceSparseApplyProximalAdagrad
ResourceSparseApplyProximalGradientDescent ResourceSparseApplyRMSProp ScatterAdd ScatterSub
ScatterUpdate ScatterNdAdd ScatterNdSub ScatterNdUpdate SparseApplyAdagrad SparseApplyMomentum
SparseApplyRMSProp SparseApplyFtrl SparseApplyAdadelta
"""
_TENSORFLOW_1 = """
Switch RefSwitch Merge RefMerge Enter RefEnter Exit RefExit NextIteration RefNextIteration LoopCond
TensorArrayV3 TensorArrayWriteV3 TensorArrayReadV3 TensorArrayGatherV3 TensorArrayScatterV3
TensorArrayConcatV3 TensorArraySplitV3 TensorArraySizeV3 TensorArrayGradV3 StackPushV2 StackPopV2
"""
_DIAGONALS = """
MatrixDiagV2 MatrixDiagV3 MatrixDiagPartV2 MatrixDiagPartV3 MatrixSetDiagV2 MatrixSetDiagV3
"""
_TENSOR_SCATTERS = """
TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub TensorScatterUpdate
"""
_NORMS = "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3"
_NORM_GRADIENTS = "FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3"

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_ELEMENTWISE.split(), elementwise.elementwise),
    **dict.fromkeys(_ADDITIVE.split(), elementwise.additive),
    **dict.fromkeys(_IMAGES.split(), contractions.images),
    **dict.fromkeys(_NORMS.split(), norms.norm),
    **dict.fromkeys(_NORM_GRADIENTS.split(), norms.norm_gradient),
    **dict.fromkeys(LETTERS, by_letters),
    **dict.fromkeys(LEADING, by_leading),
    **dict.fromkeys(_UPDATES.split(), special.updates),
    **dict.fromkeys(_TENSORFLOW_1.split(), special.of_tensorflow_1),
    **dict.fromkeys(_DIAGONALS.split(), special.diagonals),
    **dict.fromkeys(_TENSOR_SCATTERS.split(), segments.tensor_scatter),
    "IdentityN": elementwise.identity_n,
    "BiasAdd": elementwise.with_vector,
    "SoftmaxCrossEntropyWithLogits": elementwise.cross_entropy,
    "SparseSoftmaxCrossEntropyWithLogits": elementwise.cross_entropy,
    "Select": elementwise.select,
    "MatMul": contractions.matmul,
    "BatchMatMul": contractions.batch_matmul,
    "BatchMatMulV2": contractions.batch_matmul,
    "BatchMatMulV3": contractions.batch_matmul,
    "Einsum": contractions.einsum,
    "BiasAddGrad": contractions.bias_add_grad,
    "Sum": reductions.sum_,
    "Mean": reductions.mean,
    "Max": functools.partial(reductions.reduction, combine="max"),
    "Min": functools.partial(reductions.reduction, combine="min"),
    "Prod": functools.partial(reductions.reduction, combine="prod"),
    "All": functools.partial(reductions.reduction, combine="all"),
    "Any": functools.partial(reductions.reduction, combine="any"),
    "L2Loss": reductions.l2_loss,
    "Cumsum": reductions.along_axis,
    "Cumprod": reductions.along_axis,
    "ArgMax": reductions.along_axis,
    "ArgMin": reductions.along_axis,
    "Conv2D": contractions.convolution,
    "Conv3D": contractions.convolution,
    "DepthwiseConv2dNative": contractions.convolution,
    "Conv2DBackpropInput": contractions.input_gradient,
    "DepthwiseConv2dNativeBackpropInput": contractions.input_gradient,
    "Conv3DBackpropInputV2": contractions.input_gradient,
    "Conv2DBackpropFilter": contractions.filter_gradient,
    "DepthwiseConv2dNativeBackpropFilter": contractions.filter_gradient,
    "Conv3DBackpropFilterV2": contractions.filter_gradient,
    "AvgPoolGrad": contractions.average_pool_gradient,
    "AvgPool3DGrad": contractions.average_pool_gradient,
    "Reshape": layout.reshape,
    "ExpandDims": layout.reshape,
    "Squeeze": layout.squeeze,
    "Transpose": layout.transpose,
    "Pack": layout.pack,
    "Unpack": layout.unpack,
    "ConcatV2": layout.concat,
    "Split": layout.split,
    "SplitV": layout.split_v,
    "Slice": slicing.slice_,
    "StridedSlice": slicing.strided_slice,
    "StridedSliceGrad": slicing.strided_slice_gradient,
    "Pad": slicing.pad,
    "PadV2": slicing.pad,
    "MirrorPad": slicing.pad,
    "Tile": layout.tile,
    "BroadcastTo": layout.broadcast_to,
    "ReverseV2": layout.reverse,
    "Roll": layout.reverse,
    "GatherV2": segments.gather,
    "ResourceGather": segments.resource_gather,
    "OneHot": segments.one_hot,
    "Concat": layout.concat_v1,
    "BiasAddV1": elementwise.with_vector,
    "ConjugateTranspose": layout.transpose,
    "MirrorPadGrad": slicing.pad,
    "Gather": segments.gather_v1,
    "GatherNd": segments.gather_nd,
    "ResourceGatherNd": segments.gather_nd,
    "ScatterNd": segments.scatter_nd,
    "UnsortedSegmentSum": segments.unsorted_segment,
    "UnsortedSegmentMax": segments.unsorted_segment_max,
    "UnsortedSegmentMin": segments.unsorted_segment_min,
    "UnsortedSegmentProd": segments.unsorted_segment_prod,
    "CumulativeLogsumexp": reductions.along_axis,
    "SpaceToBatchND": special.space_to_batch,
    "BatchToSpaceND": special.batch_to_space,
    "ReverseSequence": special.reverse_sequence,
    "EnsureShape": special.ensure_shape,
    "Bitcast": special.bitcast,
    "Svd": special.decomposition,
    "SelfAdjointEigV2": special.decomposition,
    "MaxPoolWithArgmax": special.max_pool_with_argmax,
    "MaxPoolGradWithArgmax": special.max_pool_with_argmax,
    "QuantizeAndDequantizeV2": special.quantize,
    "QuantizeAndDequantizeV3": special.quantize,
    "QuantizeAndDequantizeV4": special.quantize,
    "FakeQuantWithMinMaxVarsGradient": special.quantize_gradient,
    "FakeQuantWithMinMaxVarsPerChannelGradient": special.quantize_gradient,
    "QuantizeAndDequantizeV4Grad": special.quantize_gradient,
    "Bincount": special.bincount,
    "DenseBincount": special.bincount,
    "HistogramFixedWidth": special.histogram,
}
