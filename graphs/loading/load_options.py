"""What a user says about a model and its run, beside the model's path."""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

MODES = ("", "train", "inference")


class GuessedSizes(NamedTuple):
    """What is taken for an unknown batch, image's height and width, and any other dimension."""

    batch: int = 32
    image: int = 224
    other: int = 16


FIRST_GUESS = GuessedSizes()
OTHER_GUESSES = (
    GuessedSizes(image=256, other=64),
    GuessedSizes(batch=60),
    GuessedSizes(60, 240, 60),
    GuessedSizes(120, 512, 120),
    GuessedSizes(other=840),
    GuessedSizes(batch=840),
)
"""What is tried in turn where an op refuses the first: longer sizes, and of many divisors."""


@dataclasses.dataclass(frozen=True)
class LoadOptions:
    """How to find the run and fill its shapes. What is empty is found out from the model.

    Attributes:
      fetch: tensors "op:i" and ops "op" to run; wins over everything else.
      signature: name of the signature to run, or to make a training step of.
      mode: "train", "inference" or empty.
      batch_size: fills leading unknown dimensions of inputs.
      input_shape: {input: shape}; an input is named "op", "op:0" or by a signature's argument.
      tags: all tags of the MetaGraphDef to read, of a SavedModel that has several.
      fed_shape: {tensor or op: shape} of arrays that will be fed; wins over guesses.
      guess: of dimensions that nobody tells.
    """

    fetch: tuple[str, ...] = ()
    signature: str = ""
    mode: str = ""
    batch_size: int | None = None
    input_shape: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    tags: tuple[str, ...] = ()
    fed_shape: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    guess: GuessedSizes = FIRST_GUESS

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode is {self.mode!r}; want 'train', 'inference' or ''")
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size is {self.batch_size}; want 1 or more")
        for name, shape in self.input_shape.items():
            if any(size < 0 for size in shape):
                raise ValueError(f"input_shape of {name!r} is {shape}; want sizes of 0 or more")
