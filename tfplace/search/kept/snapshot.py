"""A policy's state as named arrays, so that a search can stop and go on elsewhere."""

import json
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.protos import TfVariable

Snapshot = dict[str, np.ndarray]


def of_variables(prefix: str, variables: Sequence[TfVariable]) -> Snapshot:
    """Values of TensorFlow variables, numbered in their order."""
    return {
        f"{prefix}/{number}": np.asarray(variable.numpy())
        for number, variable in enumerate(variables)
    }


def into_variables(
    prefix: str, variables: Sequence[TfVariable], snapshot: Mapping[str, np.ndarray]
) -> None:
    """Assigns what `of_variables` took; ValueError: an array is missing or has another shape."""
    for number, variable in enumerate(variables):
        name = f"{prefix}/{number}"
        found = snapshot.get(name)
        if found is None or found.shape != tuple(variable.shape):
            shape = None if found is None else found.shape
            raise ValueError(
                f"restoring a policy: {name} has shape {shape}, wanted {tuple(variable.shape)}; "
                "restore into a policy of the same problem and configuration"
            )
        variable.assign(found)


def of_generator(rng: np.random.Generator) -> np.ndarray:
    """State of a random generator, as one string."""
    return np.array(json.dumps(rng.bit_generator.state))


def into_generator(rng: np.random.Generator, state: np.ndarray) -> None:
    """Sets what `of_generator` took."""
    rng.bit_generator.state = json.loads(str(state))
