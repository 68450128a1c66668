"""Loops and conditionals of TensorFlow 2, alone, nested, trained, and in functions."""

from __future__ import annotations

import tensorflow as tf

from tests.corpus.entry import model
from tests.corpus.saving import save, serve

_X = [tf.TensorSpec([None, 3], tf.float32, name="x")]


class Weights(tf.Module):
    """A module with one matrix."""

    def __init__(self):
        super().__init__()
        self.w = tf.Variable([[0.5, 0.1, 0.0], [0.0, -0.5, 0.2], [0.3, 0.0, 0.7]], name="w")


@model()
def while_loop(folder):
    class Loop(Weights):
        @tf.function(input_signature=_X)
        def f(self, x):
            for _ in tf.range(4):
                x = tf.tanh(x @ self.w) + 1.0
            return {"y": x}

    return serve(Loop(), folder)


@model()
def while_loop_of_data(folder):
    """The number of iterations depends on the input."""

    class Loop(Weights):
        @tf.function(input_signature=_X)
        def f(self, x):
            count = 0
            while tf.reduce_sum(tf.abs(x)) > 1.0:
                x = x * 0.5 @ self.w
                count += 1
            return {"y": x, "count": count}

    return serve(Loop(), folder)


@model()
def trained_while_loop(folder):
    """Gradients of a loop: a second loop over tensor lists."""

    class Loop(Weights):
        @tf.function(input_signature=_X)
        def train_step(self, x):
            with tf.GradientTape() as tape:
                y = x
                for _ in tf.range(3):
                    y = tf.tanh(y @ self.w)
                loss = tf.reduce_mean(tf.square(y - x))
            self.w.assign_sub(0.1 * tape.gradient(loss, self.w))
            return {"loss": loss}

    module = Loop()
    return save(module, folder, train_step=module.train_step)


@model()
def nested_loops_and_conditions(folder):
    class Nest(Weights):
        @tf.function
        def inner(self, x):
            for _ in tf.range(2):
                if tf.reduce_sum(x) > 0.0:
                    x = x @ self.w
                else:
                    x = tf.nn.relu(x) + 0.5
            return x

        @tf.function(input_signature=_X)
        def f(self, x):
            for i in tf.range(3):
                x = self.inner(x) + tf.cast(i, tf.float32)
            return {"y": x, "once": self.inner(x)}

    return serve(Nest(), folder)


@model()
def cond_case_and_switch(folder):
    class Branches(Weights):
        @tf.function(
            input_signature=[*_X, tf.TensorSpec([], tf.int32, name="n"), tf.TensorSpec([], tf.bool)]
        )
        def f(self, x, n, flag):
            a = tf.cond(flag, lambda: x @ self.w, lambda: -x)
            b = tf.switch_case(n % 3, [lambda: a, lambda: a * 2.0, lambda: a @ self.w])
            pairs = [(n > 5, lambda: b + 1.0), (n < 2, lambda: b - 1.0)]
            return {"y": tf.case(pairs, default=lambda: b)}

    return serve(Branches(), folder)


@model()
def map_fn_scan_and_foldl(folder):
    class Maps(Weights):
        @tf.function(input_signature=[tf.TensorSpec([4, 3], tf.float32, name="x")])
        def f(self, x):
            mapped = tf.map_fn(lambda row: tf.linalg.matvec(self.w, row), x)
            scanned = tf.scan(lambda a, row: a * 0.5 + row, mapped)
            return {"y": tf.foldl(lambda a, row: a + row, scanned)}

    return serve(Maps(), folder)


@model()
def vectorized_map(folder):
    class Maps(Weights):
        @tf.function(input_signature=[tf.TensorSpec([4, 3], tf.float32, name="x")])
        def f(self, x):
            return {"y": tf.vectorized_map(lambda row: tf.linalg.matvec(self.w, row), x)}

    return serve(Maps(), folder)


@model()
def tensor_arrays(folder):
    class Arrays(Weights):
        @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
        def f(self, x):
            rows = tf.TensorArray(tf.float32, 0, dynamic_size=True)
            for i in tf.range(tf.shape(x)[0]):
                rows = rows.write(i, x[i] * tf.cast(i, tf.float32))
            return {"y": rows.stack() @ self.w}

    return serve(Arrays(), folder)


@model()
def variable_changed_in_loop(folder):
    """Side effects inside a loop and a condition."""

    class Counter(tf.Module):
        def __init__(self):
            super().__init__()
            self.count = tf.Variable(0, trainable=False, name="count")

        @tf.function(input_signature=[tf.TensorSpec([], tf.int32, name="n")])
        def f(self, n):
            for i in tf.range(n % 5):
                if i % 2 == 0:
                    self.count.assign_add(i)
            return {"count": self.count.read_value()}

    return serve(Counter(), folder)


@model()
def assertions_and_prints(folder):
    class Asserting(Weights):
        @tf.function(input_signature=_X)
        def f(self, x):
            tf.debugging.assert_all_finite(x, "x must be finite")
            tf.debugging.assert_equal(tf.shape(x)[1], 3)
            tf.print("sum", tf.reduce_sum(x), output_stream="file:///dev/null")
            return {"y": x @ self.w}

    return serve(Asserting(), folder)


@model()
def trained_conditions(folder):
    class Branches(Weights):
        @tf.function
        def deeper(self, x):
            return tf.cond(tf.reduce_mean(x) > 0.0, lambda: tf.tanh(x @ self.w), lambda: x * 0.5)

        @tf.function(input_signature=[*_X, tf.TensorSpec([], tf.int32, name="n")])
        def train_step(self, x, n):
            with tf.GradientTape() as tape:
                y = tf.cond(n > 0, lambda: self.deeper(x @ self.w), lambda: tf.exp(self.deeper(x)))
                z = tf.switch_case(n, [lambda: y, lambda: self.deeper(y), lambda: -y @ self.w])
                loss = tf.reduce_mean(z**2)
            self.w.assign_sub(0.1 * tape.gradient(loss, self.w))
            return {"loss": loss}

    module = Branches()
    return save(module, folder, train_step=module.train_step)
