"""Batch normalisation: with the statistics of other batches, images are apart.

In training its statistics are those of the whole batch: `decompose_norms` takes it apart before.
"""

from __future__ import annotations

from rewrite.split.op_view import Answer, OpView, Split, StayWhole, attr_of
from rewrite.split.states import SUM, WHOLE, Sharded, State

TRAINING = StayWhole("batch normalisation in training works across the batch")


def _images_state(view: OpView) -> Sharded | None:
    """How the images are cut: the first input that is sharded says it, along the first axis."""
    for each in view.inputs:
        if isinstance(each.state, Sharded) and each.state.axis == 0 and each.shape is not None:
            return each.state if len(each.shape) > 3 else None
    return None


def norm(view: OpView, is_taken_apart: bool = False) -> Answer:
    """FusedBatchNorm*: input 0 holds images, all others one number per channel."""
    state = _images_state(view)
    if state is None:
        return StayWhole()
    if attr_of(view.node, "is_training").b and not is_taken_apart:
        return TRAINING
    wholes: tuple[State, ...] = (WHOLE,) * (len(view.inputs) - 1)
    return Split((state, *wholes), (state, *(WHOLE,) * (len(view.output_shapes) - 1)))


def norm_gradient(view: OpView, is_taken_apart: bool = False) -> Answer:
    """FusedBatchNormGrad*: inputs 0 and 1 hold images; outputs 1 and 2 sum over them."""
    state = _images_state(view)
    if state is None:
        return StayWhole()
    if attr_of(view.node, "is_training").b and not is_taken_apart:
        return TRAINING
    wholes: tuple[State, ...] = (WHOLE,) * (len(view.inputs) - 2)
    unused = (WHOLE,) * (len(view.output_shapes) - 3)
    return Split((state, state, *wholes), (state, SUM, SUM, *unused))
