"""`step.fit` trains as `model.fit` does: losses, weights, callbacks, validation."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tfplace

QUICK = {"cluster": "k80x2", "max_trials": 2, "budget_seconds": 2.0, "algorithm": "single"}
QUICK |= {"verify": "structure"}
X = np.random.default_rng(0).random((10, 3)).astype(np.float32)
Y = X.sum(1, keepdims=True)


def each_step(package, weights):
    """A callback that sets the learning rate at a step, and keeps what an epoch's end sees."""

    def set_rate(batch, logs=None):
        callback.model.optimizer.learning_rate.assign(0.1 / (1 + batch))

    callback = package.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs=None: weights.extend(callback.model.get_weights())
    )
    callback.on_train_batch_begin = set_rate
    return callback


def made(package):
    package.utils.set_random_seed(1)
    layers = package.layers
    model = package.Sequential([layers.Input((3,)), layers.Dense(2, "relu"), layers.Dense(1)])
    model.compile(package.optimizers.SGD(0.1, momentum=0.5), "mse", metrics=["mae"])
    return model


def trained(package, fit, **keywords):
    weights = []
    seen = each_step(package, weights)
    history = fit(X, Y, batch_size=4, epochs=2, shuffle=False, verbose=0,
                  validation_data=(X, Y), callbacks=seen, **keywords)  # fmt: skip
    return history.history, weights


@pytest.mark.parametrize("package", [keras, tf_keras])
def test_fit_with_a_placed_step_is_fit(package):
    wanted, expected = made(package), made(package)
    history, weights = trained(package, expected.fit)
    step = tfplace.place(wanted, (X[:4], Y[:4]), batch_sizes=[2], **QUICK)
    found = trained(package, step.fit)
    assert set(found[0]) == {"loss", "mae", "val_loss", "val_mae"}
    for name in history:
        assert found[0][name] == pytest.approx(history[name], rel=1e-4), name
    for one, other in zip(found[1], weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    assert int(wanted.optimizer.iterations) == int(expected.optimizer.iterations) == 6
    # Afterwards the model is its own again, and the step has its values.
    again = [model.fit(X[:4], Y[:4], batch_size=4, shuffle=False, verbose=0).history["loss"]
             for model in (wanted, expected)]  # fmt: skip
    assert again[0] == pytest.approx(again[1], rel=1e-4)
    wanted.compile("sgd", "mse")
    with pytest.raises(tfplace.TfplaceError, match="place it again"):
        step.fit(X, Y)


def test_data_sets_of_unknown_size_and_several_steps_at_once():
    model = made(keras)
    model.compile("sgd", "mse", steps_per_execution=2)
    step = tfplace.place(model, (X[:5], Y[:5]), **QUICK)
    batches = tf.data.Dataset.from_tensor_slices((X, Y)).batch(5).filter(lambda x, y: True)
    assert len(step.fit(batches, epochs=2, shuffle=False, verbose=0).history["loss"]) == 2
    assert int(model.optimizer.iterations) == 4


@pytest.mark.parametrize("is_scaled", [False, True])
def test_gradients_that_are_accumulated_over_several_steps(is_scaled):
    """Keras computes what it calls `iterations` of its own counter then."""

    def accumulating():
        model = made(keras)
        optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
        if is_scaled:
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=16.0)
        model.compile(optimizer, "mse")
        return model

    wanted, expected = accumulating(), accumulating()
    step = tfplace.place(wanted, (X[:5], Y[:5]), **QUICK)
    found = [fit(X, Y, batch_size=5, shuffle=False, epochs=3, verbose=0).history["loss"]
             for fit in (step.fit, expected.fit)]  # fmt: skip
    assert found[0] == pytest.approx(found[1], rel=1e-4)


def same_losses_and_weights(wanted, expected, example, *data, **keywords):
    """Fits one model by a placed step, the other by itself."""
    step = tfplace.place(wanted, example, **QUICK)
    options = {"batch_size": 5, "epochs": 2, "shuffle": False, "verbose": 0, **keywords}
    found, history = (fit(*data, **options).history for fit in (step.fit, expected.fit))
    assert set(found) == set(history)
    for name, values in history.items():
        assert found[name] == pytest.approx(values, rel=1e-4), name
    for one, other in zip(wanted.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("package", [keras, tf_keras])
@pytest.mark.parametrize("name", ["sample_weight", "class_weight"])
def test_weights_of_samples_need_no_example(name, package):
    weights = {"sample_weight": X[:, 0], "class_weight": {0: 1.0, 1: 3.0}}[name]
    labels = (Y[:, 0] > 1.5).astype(np.int64)
    both = made(package), made(package)
    for model in both:
        model.compile("sgd", "mse", metrics=["mae"], weighted_metrics=["mse"])
    same_losses_and_weights(*both, (X[:5], labels[:5]), X, labels, batch_size=4, **{name: weights})


@pytest.mark.parametrize("package", [keras, tf_keras])
def test_weights_of_the_example_may_be_left_out(package):
    same_losses_and_weights(made(package), made(package), (X[:5], Y[:5], X[:5, 0]), X, Y)


@pytest.mark.parametrize("package", [keras, tf_keras])
def test_placing_does_not_train_what_keras_does_not_know_of(package):
    class Own(package.Model):  # type: ignore[name-defined]
        def __init__(self):
            super().__init__()
            self.dense = package.layers.Dense(1)
            self.own_optimizer = package.optimizers.Adam(0.1)
            self.counter = tf.Variable(1.0, trainable=False)

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.counter * tf.reduce_mean((self(x) - y) ** 2)
            weights = self.trainable_variables
            gradients = tape.gradient(loss, weights)
            self.own_optimizer.apply_gradients(zip(gradients, weights, strict=True))
            self.counter.assign_add(1.0)
            return {"loss": loss}

    def own():
        package.utils.set_random_seed(1)
        model = Own()
        model(X)
        model.compile("sgd", "mse")
        return model

    wanted = own()
    same_losses_and_weights(wanted, own(), (X[:5], Y[:5]), X, Y)
    assert (float(wanted.counter), int(wanted.own_optimizer.iterations)) == (5.0, 4)


@pytest.mark.parametrize("package", [keras, tf_keras])
def test_states_of_a_layer_begin_as_they_were(package):
    def recurrent():
        package.utils.set_random_seed(1)
        inputs = package.layers.Input(batch_shape=(5, 4, 3))
        hidden = package.layers.SimpleRNN(2, stateful=True)(inputs)
        model = package.Model(inputs, package.layers.Dense(1)(hidden))
        model.compile("sgd", "mse")
        return model

    x = np.random.default_rng(1).random((10, 4, 3)).astype(np.float32)
    same_losses_and_weights(recurrent(), recurrent(), (x[:5], Y[:5]), x, Y)


@pytest.mark.parametrize("package", [keras, tf_keras])
def test_building_a_model_is_no_call_of_it(package):
    class Counting(package.layers.Layer):  # type: ignore[name-defined]
        def build(self, shape):
            self.calls = self.add_weight(shape=(), initializer="ones", trainable=False)

        def call(self, x):
            self.calls.assign(2.0 * self.calls)
            return x * self.calls

    model = package.Sequential([Counting(), package.layers.Dense(1)])
    model.compile("sgd", "mse")
    step = tfplace.place(model, {"x": X[:5], "y": Y[:5]}, **QUICK)
    assert float(model.layers[0].calls) == 1.0
    step(X[:5], Y[:5])
    step.sync()
    assert float(model.layers[0].calls) == 2.0


@pytest.mark.parametrize("package", [keras, tf_keras])
def test_a_model_is_built_as_fit_builds_it(package):
    """In tf_keras each trace of a layer with a seed takes another one."""

    def own():
        package.utils.set_random_seed(1)
        layers = package.layers
        dense = layers.Dense(1, kernel_initializer="ones")  # others depend on what was drawn before
        model = package.Sequential([layers.Dropout(0.5, seed=3), dense])
        model.compile("sgd", "mse")
        return model

    same_losses_and_weights(own(), own(), (X[:5], Y[:5]), X, Y)


@pytest.mark.parametrize("package", [keras, tf_keras])
def test_inputs_alone_are_no_tuple_of_one(package):
    class Encoder(package.Model):  # type: ignore[name-defined]
        def __init__(self):
            super().__init__()
            self.dense = package.layers.Dense(3)

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            with tf.GradientTape() as tape:  # of a tuple this would be the sum over another axis
                loss = tf.reduce_sum(
                    tf.reduce_mean((self(data) - tf.convert_to_tensor(data)) ** 2, 0)
                )
            weights = self.trainable_variables
            self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            return {"loss": loss}

    def encoder():
        package.utils.set_random_seed(1)
        model = Encoder()
        model(X)
        model.compile("sgd")
        return model

    same_losses_and_weights(encoder(), encoder(), (X[:5],), X)
    step = tfplace.place(encoder(), (X[:5],), **QUICK)
    with pytest.raises(tfplace.TfplaceError, match="found a tuple of one"):
        step.fit(tf.data.Dataset.from_tensors((X[:5],)))


@pytest.mark.parametrize("package", [keras, tf_keras])
def test_a_train_function_of_its_own_is_told(package):
    class Own(package.Sequential):  # type: ignore[name-defined]
        def make_train_function(self, force=False):
            self.train_function = None
            return super().make_train_function(force=force)

    model = Own([package.layers.Input((3,)), package.layers.Dense(1)])
    model.compile("sgd", "mse")
    step = tfplace.place(model, (X[:5], Y[:5]), **QUICK)
    with pytest.raises(tfplace.TfplaceError, match="has made another train function"):
        step.fit(X, Y)
    assert int(model.optimizer.iterations) == 0
    model.fit = lambda x, y: None
    with pytest.raises(tfplace.TfplaceError, match="without a step of the placed step"):
        step.fit(X, Y)


@pytest.mark.parametrize("package", [keras, tf_keras])
def test_several_inputs_and_targets_may_be_lists(package):
    def two():
        package.utils.set_random_seed(1)
        one, other = (package.layers.Input((3,)) for _ in range(2))
        both = package.layers.Add()([one, other])
        of_both = package.layers.Dense(1, name="of_both")(both)
        outputs = [of_both, package.layers.Dense(1, name="of_one")(other)]
        model = package.Model([one, other], outputs)
        model.compile("sgd", ["mse", "mae"])
        return model

    example = ([X[:5], X[:5]], [Y[:5], Y[:5]])
    same_losses_and_weights(two(), two(), example, [X, X + 1.0], [Y, -Y])


def never(*_):
    raise AssertionError("placed again")


@pytest.mark.parametrize("package", [keras, tf_keras])
def test_one_placing_is_for_batches_of_any_size_with_losses_of_each_output(package, monkeypatch):
    def two_headed():
        package.utils.set_random_seed(1)
        x = package.layers.Input((3,), name="x")
        outputs = {name: package.layers.Dense(1, name=name)(x) for name in "ab"}
        model = package.Model({"x": x}, outputs)
        losses = {"a": "mse", "b": "mae"}
        model.compile("sgd", losses, metrics=losses, loss_weights={"a": 1.0, "b": 0.5},
                      weighted_metrics={"b": "mse"}, steps_per_execution=2)  # fmt: skip
        return model

    wanted, expected = two_headed(), two_headed()
    data, weights = ({"x": X}, {"a": Y, "b": -Y}), {"a": X[:, 0], "b": X[:, 1]}
    step = tfplace.place(
        wanted,
        ({"x": X[:5]}, {"a": Y[:5], "b": Y[:5]}, {n: w[:5] for n, w in weights.items()}),
        **QUICK,
    )
    monkeypatch.setattr("tfplace.api.placings.place_like", never)
    for size in (4, 7):
        found, history = (
            fit(
                *data, size, 2, 0, shuffle=False, sample_weight=weights, validation_data=data
            ).history
            for fit in (step.fit, expected.fit)
        )
        assert "val_b_loss" in history and set(found) == set(history)
        for name, values in history.items():
            assert found[name] == pytest.approx(values, rel=1e-4), name
    for one, other in zip(wanted.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("package", [keras, tf_keras])
def test_one_placing_is_for_all_lengths_that_inputs_leave_open(package, monkeypatch):
    def tagger():
        package.utils.set_random_seed(1)
        layers = package.layers
        words, person = layers.Input((None,), name="words"), layers.Input((3,), name="person")
        vectors = layers.Embedding(9, 4)(words)
        outputs = {
            "tags": layers.Dense(2, name="tags")(
                layers.SimpleRNN(4, return_sequences=True)(vectors)
            ),
            "score": layers.Dense(1, name="score")(person),
        }
        model = package.Model({"w": words, "p": person}, outputs)
        model.compile(
            "adam",
            {
                "tags": package.losses.SparseCategoricalCrossentropy(from_logits=True),
                "score": "mse",
            },
        )
        return model

    sizes = ((4, 5), (4, 7), (3, 3), (1, 7))
    words = [np.arange(b * n).reshape(b, n) % 9 for b, n in sizes]
    batches = [({"w": w, "p": X[: len(w)]}, {"tags": w % 2, "score": Y[: len(w)]}) for w in words]
    spec = tf.nest.map_structure(lambda a: tf.TensorSpec([None, a.shape[1]], a.dtype), batches[0])
    for part, name in zip(spec, ("w", "tags"), strict=True):
        part[name] = tf.TensorSpec([None, None], tf.int64)
    data = tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=spec)
    data = data.apply(tf.data.experimental.assert_cardinality(len(batches)))
    wanted, expected = tagger(), tagger()
    step = tfplace.place(wanted, batches[0], **QUICK)
    monkeypatch.setattr("tfplace.api.placings.place_like", never)
    found, history = (fit(data, epochs=3, verbose=0).history for fit in (step.fit, expected.fit))
    assert set(found) == set(history)
    for name, values in history.items():
        assert found[name] == pytest.approx(values, rel=1e-4), name
    for one, other in zip(wanted.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("package", [keras, tf_keras])
def test_another_length_is_placed_once_for_all_lengths(package, monkeypatch):
    class Mean(package.layers.Layer):  # type: ignore[name-defined]
        def call(self, x):
            return tf.reduce_mean(x, 1)

    model = package.Sequential([Mean(), package.layers.Dense(1)])
    model.compile("sgd", "mse")
    step = tfplace.place(model, (np.ones((5, 4, 3), np.float32), Y[:5]), **QUICK)
    step(np.ones((5, 7, 3), np.float32), Y[:5])
    monkeypatch.setattr("tfplace.api.placings.place_like", never)
    step(np.ones((4, 2, 3), np.float32), Y[:4])
    assert step(np.ones((2, 9, 3), np.float32), Y[:2])["loss"] > 0.0


def test_what_keras_traces_for_any_length_but_wrongly_is_placed_for_the_examples():
    """TimeDistributed takes the batch for the length where that is open."""
    layers = keras.layers
    model = keras.Sequential(
        [layers.Input((None, 3)), layers.GRU(2, return_sequences=True),
         layers.TimeDistributed(layers.Dense(5))]
    )  # fmt: skip
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    rng = np.random.default_rng(0)
    x, y = rng.random((4, 6, 3)).astype(np.float32), rng.integers(0, 5, (4, 6))
    before = model.get_weights()
    step = tfplace.place(model, (x, y), **QUICK)
    step(x, y)
    step.sync()
    found = model.get_weights()
    model.set_weights(before)
    model.train_on_batch(x, y)
    for one, other in zip(found, model.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("package", [keras, tf_keras])
def test_a_step_whose_python_needs_the_size_of_a_batch_is_placed_for_each(package):
    class Summed(package.Sequential):  # type: ignore[name-defined]
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum((self(x) - y) ** 2) / x.shape[0]
            weights = self.trainable_variables
            self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            return {"loss": loss}

    def summed():
        package.utils.set_random_seed(1)
        model = Summed([package.layers.Dense(1, kernel_initializer="ones")])  # built by fit
        model.compile("sgd", "mse")
        return model

    same_losses_and_weights(summed(), summed(), (X[:2], Y[:2]), X, Y)


@pytest.mark.parametrize("package", [keras, tf_keras])
def test_a_callback_may_read_and_set_weights_between_two_steps(package):
    class Clipping(package.callbacks.Callback):  # type: ignore[name-defined]
        def on_train_batch_end(self, batch, logs=None):
            kernel = self.model.layers[0].kernel
            kernel.assign(tf.clip_by_value(kernel, -0.2, 0.2))
            self.model.evaluate(X, Y, verbose=0)

    same_losses_and_weights(
        made(package), made(package), (X[:5], Y[:5]), X, Y, callbacks=Clipping()
    )
    step = tfplace.place(made(package), (X[:5], Y[:5]), **QUICK)
    step.fit(X, Y, 5, 1, 0, [Clipping()])
    with pytest.raises(tfplace.TfplaceError, match="wanted the arguments of model"):
        step.fit(X, Y, 5, batch_size=5)


def test_a_last_part_of_other_floats_than_the_example():
    x, y = X.astype(np.float64), Y.astype(np.float64)  # which Keras casts
    same_losses_and_weights(made(keras), made(keras), (x[:4], y[:4]), x, y, batch_size=4)


@pytest.mark.parametrize("package", [keras, tf_keras])
def test_a_model_of_replicas_is_told(package):
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = package.Sequential([package.layers.Dense(1)])
        model.compile("sgd", "mse")
        weight = tf.Variable(1.0)
    with pytest.raises(tfplace.TfplaceError, match=r"scope of a MirroredStrategy.*make it outside"):
        tfplace.place(model, (X, Y), **QUICK)
    with pytest.raises(tfplace.TfplaceError, match=r"variables of a tf\.distribute strategy"):
        tfplace.place(weight.assign_add, (tf.constant(1.0),), **QUICK)


@pytest.mark.parametrize("package", [keras, tf_keras])
def test_floats_are_not_cast_to_fewer_bits_than_they_need(package):
    def scaled(example):
        model = package.Sequential([package.layers.Input((1,)), package.layers.Dense(1)])
        model.compile("sgd", lambda y, found: 0.0 * found + tf.cast(y, tf.float32))
        return tfplace.place(model, example, **QUICK)

    half, large = np.ones((2, 1), np.float16), np.full((2, 1), 7e6, np.float32)
    step = scaled((half, half))  # of arrays fit makes float32
    for y in (large, large.astype(np.float64)):
        assert float(step(half, y)["loss"]) == 7e6
        step.reset_metrics()
    with pytest.raises(tfplace.TfplaceError, match="float32; wanted a tensor of dtype float16"):
        scaled((tf.constant(half), tf.constant(half)))(half, large)


@pytest.mark.parametrize("package", [keras, tf_keras])
def test_what_has_changed_since_placing_is_told(package):
    model = made(package)
    step = tfplace.place(model, (X[:5], Y[:5]), **QUICK)
    step(X[:5], Y[:5])
    with pytest.raises(tfplace.TfplaceError, match="call sync first"):
        step.fit(X, Y)
    step.sync()
    step.fit(X, Y, batch_size=5, verbose=0)
    step.fit(X, Y, batch_size=5, verbose=0)
    outer = tf.function(lambda: step(X[:5], Y[:5]))
    for _ in range(2):  # the second call runs no Python
        outer()
        with pytest.raises(tfplace.TfplaceError, match="call sync first"):
            step.fit(X, Y)
        step.sync()
    model.layers[0].trainable = False
    for use in (step.fit, step):
        with pytest.raises(tfplace.TfplaceError, match="frozen"):
            use(X[:5], Y[:5])
    model.layers[0].trainable = True
    model.compile(model.optimizer, "mae")
    with pytest.raises(tfplace.TfplaceError, match="place it again"):
        step.fit(X, Y)
    model.compile("sgd", "mse", run_eagerly=True)
    with pytest.raises(tfplace.TfplaceError, match="compiled to run eagerly"):
        tfplace.place(model, (X, Y))
