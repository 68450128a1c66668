"""Checks that the files are whole from which a model's variables and tables start."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from graphs.errors import ModelError
from graphs.source_model import Initialization

_WHAT_TO_DO = "copy the whole model again"


def require_whole(path: str, initialization: Initialization) -> None:
    """Checks that a model's checkpoint and assets are there and complete.

    The bytes of the variables are counted, not read; wrong values show when the model runs.

    Args:
      path: of the model, for messages.
      initialization: what is restored, and the files that ops read.

    Raises:
      ModelError: a file is missing, too short, or no checkpoint.
    """
    for asset in initialization.asset_feeds.values():
        if not os.path.isfile(asset):
            raise ModelError(
                f"reading model {path!r}: its asset {asset!r} is missing; {_WHAT_TO_DO}"
            )
    if initialization.checkpoint_prefix:
        _require_whole_checkpoint(path, initialization.checkpoint_prefix)


def _require_whole_checkpoint(path: str, prefix: str) -> None:
    """Checks that a checkpoint has all files, and at least the bytes that its index announces."""
    import tensorflow as tf

    try:
        reader = tf.train.load_checkpoint(prefix)
        shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
        wanted = sum(
            _string_bytes(reader.get_tensor(name))
            if dtypes[name] == tf.string
            else math.prod(shapes[name]) * dtypes[name].size
            for name in shapes
        )
    except (tf.errors.OpError, ValueError, RuntimeError, IndexError) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(
            f"reading model {path!r}: its variables in {prefix + '.*'!r} can't be read ({said}); "
            f"{_WHAT_TO_DO}"
        ) from None
    shards = sorted(Path(prefix).parent.glob(Path(prefix).name + ".data-*"))
    if not os.path.isfile(prefix + ".index"):
        return  # TensorFlow's first format is one file, which the reader has just read
    num_bytes = sum(shard.stat().st_size for shard in shards)
    if not _has_all(shards) or num_bytes < wanted:
        raise ModelError(
            f"reading model {path!r}: its variables take at least {wanted:,} bytes, found "
            f"{num_bytes:,} in {len(shards)} files {prefix + '.data-*'!r}; {_WHAT_TO_DO}"
        )


def _string_bytes(value: Any) -> int:
    """The fewest bytes of a tensor of strings in a checkpoint: a checksum, lengths, the strings."""
    strings = np.ravel(value).tolist()
    return 4 + sum(1 + len(string) for string in strings)


def _has_all(shards: list[Path]) -> bool:
    """Whether the files are as many as the "-of-00002" at their end says."""
    return bool(shards) and len(shards) == int(shards[0].name.rpartition("-of-")[2])
