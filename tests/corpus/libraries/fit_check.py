"""Whether `place` and `fit` train a library's Keras model as `model.fit` does.

`PYTHONPATH=. PYTHON -m tests.corpus.libraries.fit_check NAME...`, with the Python of the library's
venv (`venvs.python_of`), prints a line of JSON for each model: the largest relative differences of
the history and of the weights. The models must draw nothing at random while they train.
"""

import json
import os
import sys
import time

os.environ["TF_USE_LEGACY_KERAS"] = "1"
ENTRIES, BATCH, EPOCHS = 22, 8, 2
QUICK = {"cluster": "k80x2", "max_trials": 20, "budget_seconds": 10.0, "verify": "structure"}


def check(name):
    """Trains a model twice from the same values; what differs."""
    import numpy as np

    began = time.monotonic()
    found = {"name": name}
    runs = [_trained(name, is_placed) for is_placed in (False, True)]
    (wanted, weights, seen), (history, placed, seen_placed) = runs
    found["logs"] = sorted(history)
    found["same logs"] = sorted(wanted) == sorted(history) and seen == seen_placed
    found["history"] = max(
        float(np.max(np.abs(np.subtract(history[key], wanted[key])) / (np.abs(wanted[key]) + 1e-6)))
        for key in wanted
    )
    scale = max(float(np.abs(each).max(initial=0.0)) for each in weights)
    found["weights"] = (
        max(
            float(np.abs(one - other).max(initial=0.0))
            for one, other in zip(placed, weights, strict=True)
        )
        / scale
    )
    return found | {"seconds": time.monotonic() - began}


def _trained(name, is_placed):
    """The history, the weights, and how often callbacks were called."""
    import tensorflow as tf
    import tf_keras

    import tfplace
    from tests.corpus.libraries.all_models import LIBRARIES

    tf_keras.utils.set_random_seed(1)
    model, batch = _model_and_batch(LIBRARIES[name].build)
    tf_keras.utils.set_random_seed(2)
    x, y = tf.nest.map_structure(_values, batch)
    called = []
    callback = tf_keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda step, logs: called.append(step),
        on_epoch_end=lambda epoch, logs: called.append(sorted(logs)),
    )
    fit = model.fit
    if is_placed:
        example = tf.nest.map_structure(lambda each: each[:BATCH], (x, y))
        fit = tfplace.place(model, example, shards=2, **QUICK).fit
    history = fit(
        x, y, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=[callback],
        validation_data=tf.nest.map_structure(lambda each: each[:BATCH], (x, y)),
    )  # fmt: skip
    return history.history, model.get_weights(), called


def _model_and_batch(build):
    taken = []
    names = build.__globals__
    kept, names["fit"] = (
        names["fit"],
        lambda folder, made, *batch, **more: taken.extend((made, batch)),
    )
    try:
        build("")
    finally:
        names["fit"] = kept
    if not taken:
        raise ValueError("its library trains it without Keras' fit")
    return taken


def _values(spec):
    import numpy as np

    shape = [ENTRIES if size is None else size for size in spec.shape]
    rng = np.random.default_rng(len(shape))
    if spec.dtype.is_integer:
        return rng.integers(0, 2, shape).astype(spec.dtype.as_numpy_dtype)
    return rng.random(shape).astype(spec.dtype.as_numpy_dtype)


if __name__ == "__main__":
    for each in sys.argv[1:]:
        print(json.dumps(check(each)), flush=True)
