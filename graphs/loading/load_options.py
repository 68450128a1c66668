"""What a user says about a model and its run, beside the model's path."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

MODES = ("", "train", "inference")


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
    """

    fetch: tuple[str, ...] = ()
    signature: str = ""
    mode: str = ""
    batch_size: int | None = None
    input_shape: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    tags: tuple[str, ...] = ()
    fed_shape: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode is {self.mode!r}; want 'train', 'inference' or ''")
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size is {self.batch_size}; want 1 or more")
        for name, shape in self.input_shape.items():
            if any(size < 0 for size in shape):
                raise ValueError(f"input_shape of {name!r} is {shape}; want sizes of 0 or more")
