"""`tfplace.load`: an emitted model with its variables where they were placed."""

from __future__ import annotations

import re
from typing import Any

from graphs.errors import ClusterError

_MISSING_DEVICE = re.compile(r"[Cc]ould not satisfy device specification '([^']+)'")


def load(path: str, tags: Any = None) -> Any:
    """Loads an emitted SavedModel with its variables on the devices that their ops want.

    It is `tf.saved_model.load` with the one option that makes TensorFlow honour the variable
    devices which tfplace wrote; loaded without it, every variable lies on the default device
    and its value may travel at every step.

    Args:
      path: a SavedModel directory.
      tags: as for tf.saved_model.load.

    Raises:
      ClusterError: this process doesn't see a device that a variable was placed on.
    """
    import tensorflow as tf

    options = tf.saved_model.LoadOptions(experimental_variable_policy="save_variable_devices")
    try:
        return tf.saved_model.load(path, tags=tags, options=options)
    except tf.errors.InvalidArgumentError as error:
        missing = _MISSING_DEVICE.search(error.message)
        if missing is None:
            raise
        seen = ", ".join(device.name for device in tf.config.list_logical_devices())
        raise ClusterError(
            f"loading {path}: it has variables on {missing.group(1)}, which this process doesn't "
            f"see; it sees {seen}; connect to the cluster first "
            "(tf.config.experimental_connect_to_cluster, an example is in "
            "tfplace/docs/multiple_hosts.md), or load with tf.saved_model.load, which puts every "
            "variable here"
        ) from None
