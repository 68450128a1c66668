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


def _norm(
    view: OpView, is_taken_apart: bool, num_images: int, further_outputs: tuple[State, ...]
) -> Answer:
    """The first `num_images` inputs and output 0 hold images; other states are whole."""
    state = _images_state(view)
    if state is None:
        return StayWhole()
    if attr_of(view.node, "is_training").b and not is_taken_apart:
        return TRAINING
    inputs = (state,) * num_images + (WHOLE,) * (len(view.inputs) - num_images)
    unused = (WHOLE,) * (len(view.output_shapes) - 1 - len(further_outputs))
    return Split(inputs, (state, *further_outputs, *unused))


def norm(view: OpView, is_taken_apart: bool = False) -> Answer:
    """FusedBatchNorm*: input 0 holds images, all others one number per channel."""
    return _norm(view, is_taken_apart, num_images=1, further_outputs=())


def norm_gradient(view: OpView, is_taken_apart: bool = False) -> Answer:
    """FusedBatchNormGrad*: inputs 0 and 1 hold images; outputs 1 and 2 sum over them."""
    return _norm(view, is_taken_apart, num_images=2, further_outputs=(SUM, SUM))
