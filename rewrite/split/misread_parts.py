"""Parts that TensorFlow's own graph optimizer would mistake for one another.

Grappler turns Max(Sigmoid(x)) into Sigmoid(Max(x)), and ArgMax(Sigmoid(x)) into ArgMax(x), and
forgets on the way which output of its op x is (`OptimizeMaxOrMinOfMonotonicStage` of TensorFlow
2.21): of the parts that one SplitV makes, all become the first. So such a Max stays whole.
"""

from collections.abc import Mapping
from typing import Any

from graphs.names import data_inputs, op_of, tensor_of
from rewrite.split.op_view import Answer, Split
from rewrite.split.states import Sharded, State

MISREAD = "TensorFlow's graph optimizer would read the first part in place of each other one"
_EXTREMES = frozenset(
    """
    ArgMax ArgMin Max MaxPool MaxPool3D MaxPoolV2 MaxPoolWithArgmax Min UnsortedSegmentMax
    UnsortedSegmentMin
    """.split()
)
_MONOTONIC = frozenset(
    """
    Acos Acosh Asin Asinh Atan Atanh Ceil Elu Erf Erfc Exp Expm1 Floor Log Log1p Neg Relu Relu6 Rint
    Rsqrt Selu Sigmoid Sign Sinh Softplus Softsign Sqrt Tanh
    """.split()
)
_PASSING = frozenset("Identity IdentityN PreventGradient StopGradient".split())


def would_be_misread(
    node: Any, nodes: Mapping[str, Any], answers: Mapping[str, Answer], states: Mapping[str, State]
) -> bool:
    """Whether an op that is split finds the largest or smallest of what a cut hands to such ops.

    Args:
      node: the op.
      nodes: {name: NodeDef} of the step.
      answers: what became of each op before it.
      states: of each tensor before it.
    """
    if node.op not in _EXTREMES:
        return False
    tensor, is_monotonic = _first_input(node), False
    while (made_by := nodes.get(op_of(tensor))) and made_by.op in _MONOTONIC | _PASSING:
        if not data_inputs(made_by):
            break
        is_monotonic = is_monotonic or made_by.op in _MONOTONIC
        tensor = _first_input(made_by)
    is_cut = not isinstance(answers.get(op_of(tensor)), Split)
    return is_monotonic and is_cut and isinstance(states.get(tensor), Sharded)


def _first_input(node: Any) -> str:
    return tensor_of(data_inputs(node)[0])
