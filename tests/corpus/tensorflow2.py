"""Functions and objects of TensorFlow 2: captures, gradients, datasets, composites, checkpoints."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tests.corpus.control_flow import Weights
from tests.corpus.entry import model
from tests.corpus.saving import save, serve

_X = [tf.TensorSpec([None, 3], tf.float32, name="x")]


@model()
def jit_compiled(folder):
    class Compiled(Weights):
        @tf.function(jit_compile=True)
        def inner(self, x):
            return tf.nn.softmax(x @ self.w)

        @tf.function(input_signature=_X)
        def f(self, x):
            return {"y": self.inner(x) + self.inner(x + 1.0)}

    return serve(Compiled(), folder)


@model()
def noinline_and_implements(folder):
    from tensorflow.python.eager import def_function

    class Kept(Weights):
        def __init__(self):
            super().__init__()
            self.inner = def_function.function(
                lambda x: tf.tanh(x), experimental_implements="my.tanh"
            )
            self.other = def_function.function(
                lambda x: tf.sin(x @ self.w), experimental_attributes={"_noinline": True}
            )

        @tf.function(input_signature=_X)
        def f(self, x):
            return {"y": self.inner(x) + self.other(x)}

    return serve(Kept(), folder)


@model()
def custom_gradients(folder):
    """With gradients saved, differentiated again after loading."""

    @tf.custom_gradient
    def clipped(x):
        def gradient(upstream):
            return tf.clip_by_value(upstream, -0.1, 0.1)

        return tf.identity(x), gradient

    class Clipped(Weights):
        @tf.function(input_signature=_X)
        def f(self, x):
            return {"y": clipped(x @ self.w)}

        @tf.function(input_signature=_X)
        def train_step(self, x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.square(clipped(x @ self.w)))
            self.w.assign_sub(tape.gradient(loss, self.w))
            return {"loss": loss}

    module = Clipped()
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
    tf.saved_model.save(
        module,
        str(folder / "1"),
        {"serving_default": module.f, "train_step": module.train_step},
        options,
    )
    return str(folder / "1")


@model()
def captured_tensors(folder):
    """Eager tensors of several dtypes that functions close over."""

    class Captures(Weights):
        def __init__(self):
            super().__init__()
            self.bias = tf.constant([1.0, 2.0, 3.0])
            self.names = tf.constant(["a", "b", "c"])

        @tf.function(input_signature=_X)
        def f(self, x):
            y = x @ self.w + self.bias
            return {"y": y, "name": tf.gather(self.names, tf.argmax(y, 1))}

    return serve(Captures(), folder)


@model()
def signature_with_defaults(folder):
    """An input with a default value."""
    default = tf.constant(2.0)

    class Defaults(Weights):
        @tf.function(input_signature=_X)
        def f(self, x, scale=default):
            return {"y": x @ self.w * scale}

    return serve(Defaults(), folder)


@model()
def several_signatures(folder):
    """They share functions and variables; one returns its input, one has no inputs."""

    class Several(Weights):
        @tf.function
        def shared(self, x):
            return tf.tanh(x @ self.w)

        @tf.function(input_signature=_X)
        def once(self, x):
            return {"y": self.shared(x)}

        @tf.function(input_signature=_X)
        def twice(self, x):
            return {"y": self.shared(self.shared(x)), "x": x}

        @tf.function(input_signature=[])
        def norm(self):
            return {"norm": tf.norm(self.w)}

        @tf.function(input_signature=[tf.TensorSpec([3, 3], tf.float32, name="w")])
        def set(self, w):
            self.w.assign(w)
            return {"w": self.w}

    module = Several()
    return save(
        module, folder, once=module.once, twice=module.twice, norm=module.norm, set=module.set
    )


@model(refused="save it again with signatures")
def no_signatures(folder):
    """Only functions of an object; what is called is not in the main graph."""

    class Functions(Weights):
        @tf.function
        def f(self, x):
            return x @ self.w

    module = Functions()
    module.f(tf.zeros([2, 3]))
    module.f(tf.zeros([5, 3]))
    return save(module, folder)


@model()
def train_step_with_checkpoint(folder):
    """Adam of Keras 3, batch normalisation, a counter; the optimizer's state is saved.

    Keras 3 saves duplicate variables, and a v1 Session would restore only these.
    """
    import keras

    class Trainer(tf.Module):
        def __init__(self):
            super().__init__()
            keras.utils.set_random_seed(5)
            self.model = keras.Sequential(
                [
                    keras.layers.Dense(4, activation="relu"),
                    keras.layers.BatchNormalization(),
                    keras.layers.Dense(2),
                ]
            )
            self.model.build((None, 3))
            self.optimizer = keras.optimizers.Adam(0.01)
            self.optimizer.build(self.model.trainable_variables)
            self.seen = tf.Variable(0, trainable=False, dtype=tf.int64, name="seen")

        @tf.function(input_signature=[*_X, tf.TensorSpec([None], tf.int32, name="label")])
        def train_step(self, x, label):
            with tf.GradientTape() as tape:
                logits = self.model(x, training=True)
                loss = tf.reduce_mean(
                    tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits)
                )
            variables = self.model.trainable_variables
            self.optimizer.apply(tape.gradient(loss, variables), variables)
            self.seen.assign_add(tf.shape(x, tf.int64)[0])
            return {"loss": loss}

        @tf.function(input_signature=_X)
        def predict(self, x):
            return {"y": self.model(x, training=False)}

    module = Trainer()
    return save(module, folder, train_step=module.train_step, serving_default=module.predict)


@model()
def dataset_in_function(folder):
    class Data(Weights):
        @tf.function(input_signature=[tf.TensorSpec([6, 3], tf.float32, name="x")])
        def f(self, x):
            dataset = tf.data.Dataset.from_tensor_slices(x).map(lambda row: row * 2.0).batch(2)
            total = tf.zeros([2, 3])
            for batch in dataset:
                total += batch @ self.w
            return {"y": total, "sum": dataset.reduce(0.0, lambda s, b: s + tf.reduce_sum(b))}

    return serve(Data(), folder)


@model()
def stateless_and_generator_random(folder):
    class Random(tf.Module):
        def __init__(self):
            super().__init__()
            self.generator = tf.random.Generator.from_seed(1)

        @tf.function(input_signature=_X)
        def f(self, x):
            stateless = tf.random.stateless_normal(tf.shape(x), [1, 2])
            return {"stateless": x + stateless, "drawn": x + self.generator.normal(tf.shape(x))}

    return serve(Random(), folder)


@model(refused="Python code of the process that made the model")
def py_function(folder):
    class Python(Weights):
        @tf.function(input_signature=_X)
        def f(self, x):
            return {"y": tf.py_function(lambda a: a * 2.0, [x @ self.w], tf.float32)}

    return serve(Python(), folder)


@model(refused="Python code of the process that made the model")
def numpy_function(folder):
    class Python(Weights):
        @tf.function(input_signature=_X)
        def f(self, x):
            return {"y": tf.numpy_function(lambda a: np.sort(a, 0), [x @ self.w], tf.float32)}

    return serve(Python(), folder)


@model(not_compared=["signature ragged, empty batch"])
def sparse_and_ragged_inputs(folder):
    """Composite tensors as inputs and outputs of signatures."""

    class Composite(tf.Module):
        def __init__(self):
            super().__init__()
            self.w = tf.Variable(np.ones((5, 2), np.float32), name="w")

        @tf.function(input_signature=[tf.SparseTensorSpec([None, 5], tf.float32)])
        def sparse(self, s):
            return {"y": tf.sparse.sparse_dense_matmul(s, self.w), "doubled": s * 2.0}

        @tf.function(input_signature=[tf.RaggedTensorSpec([None, None], tf.int64)])
        def ragged(self, r):
            rows = tf.gather(self.w, r % 5)
            return {"sum": tf.reduce_sum(rows, 1), "lengths": r.row_lengths(), "plus": r + 1}

    module = Composite()
    return save(module, folder, sparse=module.sparse, ragged=module.ragged)


@model()
def ragged_inside(folder):
    class Ragged(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
        def f(self, text):
            words = tf.strings.split(text, " ")
            return {"count": words.row_lengths(), "longest": words.to_tensor("")[:, :1]}

    return serve(Ragged(), folder)


@model()
def sparse_inside(folder):
    class Sparse(tf.Module):
        def __init__(self):
            super().__init__()
            self.table = tf.Variable(np.arange(20, dtype=np.float32).reshape(10, 2), name="t")

        @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.int64, name="ids")])
        def f(self, ids):
            sparse = tf.sparse.from_dense(ids)
            return {"y": tf.nn.embedding_lookup_sparse(self.table, sparse, None, combiner="sum")}

    return serve(Sparse(), folder)


@model()
def quantised(folder):
    """Fake quantisation, quantised products and uniform dequantisation."""

    class Quantised(Weights):
        @tf.function(input_signature=_X)
        def f(self, x):
            faked = tf.quantization.fake_quant_with_min_max_args(x, -3.0, 3.0)
            q, low, high = tf.quantization.quantize(faked, -3.0, 3.0, tf.qint8)
            real = tf.quantization.dequantize(q, low, high)
            per_channel = tf.quantization.fake_quant_with_min_max_vars_per_channel(
                real @ self.w, [-1.0, -2.0, -3.0], [1.0, 2.0, 3.0]
            )
            return {"y": per_channel, "q": tf.cast(q, tf.int32)}

    return serve(Quantised(), folder)


@model()
def unused_branches(folder):
    """Ops in the main graph that no signature needs, and a variable that nobody reads."""

    class Unused(Weights):
        def __init__(self):
            super().__init__()
            self.unread = tf.Variable(tf.zeros([7]), name="unread")
            self.twin = tf.Variable(tf.ones([3, 3]), name="w")

        @tf.function(input_signature=_X)
        def f(self, x):
            tf.sin(x)
            return {"y": x @ self.w @ self.twin}

    return serve(Unused(), folder)


@model()
def mutable_state(folder):
    """A module with a tensor queue in variables: reads after writes must stay in order."""

    class State(tf.Module):
        def __init__(self):
            super().__init__()
            self.window = tf.Variable(tf.zeros([4]), trainable=False, name="window")

        @tf.function(input_signature=[tf.TensorSpec([], tf.float32, name="x")])
        def push(self, x):
            self.window.assign(tf.concat([self.window[1:], [x]], 0))
            mean = tf.reduce_mean(self.window)
            self.window.assign(self.window - mean)
            return {"mean": mean, "window": self.window.read_value()}

    module = State()
    return save(module, folder, serving_default=module.push)


@model()
def aliased_and_nested_modules(folder):
    """Lists, dictionaries and shared children in the object graph."""

    class Layer(tf.Module):
        def __init__(self, size):
            super().__init__()
            self.kernel = tf.Variable(np.eye(size, dtype=np.float32), name="kernel")

        @tf.function(input_signature=_X)
        def __call__(self, x):
            return tf.nn.relu(x @ self.kernel)

    class Stack(tf.Module):
        def __init__(self):
            super().__init__()
            self.layers = [Layer(3), Layer(3)]
            self.by_name = {"first": self.layers[0], "last": self.layers[-1]}

        @tf.function(input_signature=_X)
        def f(self, x):
            for layer in self.layers:
                x = layer(x)
            return {"y": x}

    return serve(Stack(), folder)
