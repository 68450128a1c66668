"""Batch normalisation: with the statistics of other batches, images are apart.

In training its statistics are those of the whole batch: `decompose_norms` takes it apart before.
Layer normalisation is the same op with the batch as channels, in training too.
"""

import dataclasses

from graphs.building.op_outputs import attr_of
from rewrite.split.decision import Answer, Split, StayWhole
from rewrite.split.rules.op_view import OpView
from rewrite.split.states import SUM, WHOLE, Sharded, State

TRAINING = StayWhole("batch normalisation in training works across the batch")


def is_across(answer: Answer) -> bool:
    """Whether a split op works across the batch: images are apart, but not their statistics."""
    first = answer.inputs[0] if isinstance(answer, Split) else WHOLE
    return isinstance(first, Sharded) and first.axis == 0


def _images_state(view: OpView, num_images: int) -> Sharded | None:
    """How the images are cut, along the first axis or the channels; the first one says it."""
    for each in view.inputs[:num_images]:
        if isinstance(each.state, Sharded) and each.shape is not None and len(each.shape) > 3:
            layout = view.attr("data_format").s
            channels = 1 if layout.startswith(b"NC") else len(layout) - 1
            return each.state if each.state.axis in (0, channels) else None
    return None


def _norm(
    view: OpView,
    is_taken_apart: bool,
    num_images: int,
    num_vectors: int,
    further_outputs: tuple[State, ...] = (),
) -> Answer:
    """The first `num_images` inputs and output 0 hold images."""
    state = _images_state(view, num_images)
    if state is None:
        return StayWhole()
    if state.axis > 0:
        return _by_channel(view, state, num_images, num_vectors)
    if attr_of(view.node, "is_training").b and not is_taken_apart:
        return TRAINING
    inputs = (state,) * num_images + (WHOLE,) * (len(view.inputs) - num_images)
    unused = (WHOLE,) * (len(view.output_shapes) - 1 - len(further_outputs))
    return Split(inputs, (state, *further_outputs, *unused))


def _by_channel(view: OpView, state: Sharded, num_images: int, num_vectors: int) -> Answer:
    """The batch lies in the channels, as layer normalisation does it: each shard has its own.

    Behind the images come `num_vectors` outputs with a number per channel; those behind these are
    what the kernel keeps for the gradient's kernel: a shard's copy of both is one pair.
    """
    of_channels = dataclasses.replace(state, axis=0)
    channels = (state.size(view.batch),)
    vectors = [
        of_channels if each.shape == channels else WHOLE for each in view.inputs[num_images:]
    ]
    kept = (WHOLE,) * (len(view.output_shapes) - 1 - num_vectors)
    return Split((*(state,) * num_images, *vectors), (state, *(of_channels,) * num_vectors, *kept))


def norm(view: OpView, is_taken_apart: bool = False) -> Answer:
    """FusedBatchNorm*: input 0 holds images, all others one number per channel."""
    return _norm(view, is_taken_apart, num_images=1, num_vectors=4)


def norm_gradient(view: OpView, is_taken_apart: bool = False) -> Answer:
    """FusedBatchNormGrad*: inputs 0 and 1 hold images; outputs 1 and 2 sum over them."""
    return _norm(view, is_taken_apart, num_images=2, num_vectors=2, further_outputs=(SUM, SUM))
