"""A placed step computes what the step computes, also for inputs of other shapes than it was
placed for."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tfplace
from graphs.function_library import bodies
from graphs.loading.sniff import sniff
from rewrite.emit import emit
from tfplace.api.example_call import Call
from tfplace.api.flat_step import INFER, TRAIN, FlatStep

QUICK = {"cluster": "k80x2", "max_trials": 5, "budget_seconds": 2.0, "algorithm": "local_search"}


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_loss_divided_by_the_batch_size_is_right_for_another_one(dynamic):
    @tf.function
    def loss(x):
        size = tf.cast(tf.shape(x)[0], tf.float32) if dynamic else x.shape[0]
        return tf.reduce_sum(x * x) / size

    placed = tfplace.place(loss, [tf.ones((8, 3))], **QUICK)
    for size in (8, 4, 5, 4):
        x = tf.reshape(tf.range(size * 3, dtype=tf.float32), (size, 3))
        assert float(placed(x)) == pytest.approx(float(loss(x)), rel=1e-6)


def test_a_data_set_that_ends_with_a_part_of_a_batch_trains_the_same_variables():
    weight = tf.Variable(tf.ones((3, 1)))

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((x @ weight - y) ** 2) / x.shape[0]
        weight.assign_sub(0.01 * tape.gradient(loss, weight))
        return loss

    rng = np.random.default_rng(0)
    x = rng.random((10, 3), np.float32)
    batches = list(tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(4).repeat(2))
    placed = tfplace.place(step, batches[0], **QUICK)
    losses = [float(placed(*batch)) for batch in batches]
    assert float(weight[0, 0]) == 1.0
    before = weight.numpy()
    placed.sync()
    trained = weight.numpy()
    weight.assign(before)
    assert losses == pytest.approx([float(step(*batch)) for batch in batches], rel=1e-5)
    np.testing.assert_allclose(trained, weight.numpy(), rtol=1e-5)
    assert len(placed.variables) == 1


def test_shapes_that_are_unknown_are_placed_once(monkeypatch):
    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32)])
    def loss(x):
        return tf.reduce_sum(x) / tf.cast(tf.shape(x)[0], tf.float32)

    placed = tfplace.place(loss, **QUICK, batch_size=4)
    monkeypatch.setattr("tfplace.api.placings.place_like", None)
    assert [float(placed(tf.ones((size, 3)))) for size in (2, 7)] == [3.0, 3.0]


def test_batch_sizes_are_placed_up_front(monkeypatch):
    placed = tfplace.place(
        lambda x, scale: scale * tf.reduce_sum(x) / x.shape[0],
        (np.ones((8, 3), np.float32), 2.0),
        batch_sizes=[2],
        **QUICK,
    )
    monkeypatch.setattr("tfplace.api.placings.place_like", None)
    assert float(placed(tf.ones((2, 3)), 2.0)) == 6.0
    with pytest.raises(tfplace.TfplaceError, match=r"3\.0 where the example had 2\.0.*baked in"):
        placed(tf.ones((2, 3)), 3.0)


def test_only_the_callers_own_calls_write_and_log(tmp_path):
    """Runs that time and compare leave nothing; the placed step does all of it, once a call."""
    weight, said = tf.Variable(tf.ones((3, 1))), []

    @tf.function
    def step(x):
        weight.assign_sub(0.01 * weight)
        loss = tf.reduce_mean(x @ weight)
        tf.io.write_file(f"{tmp_path}/" + tf.strings.as_string(loss, precision=2), "weights")
        tf.print(loss, output_stream=f"file://{tmp_path}/log")
        tf.py_function(lambda value: said.append(float(value)), [loss], [])
        return loss

    placed = tfplace.place(step, [tf.ones((4, 3))], **(QUICK | {"cluster": "local"}), verify="run")
    assert placed.report.verified.run == "equal"
    assert placed.report.model["left_out_of_runs"] == {
        "EagerPyFunc": 1,
        "PrintV2": 1,
        "WriteFile": 1,
    }
    assert not said and not list(tmp_path.iterdir())
    losses = [float(placed(tf.ones((4, 3)))) for _ in range(2)]
    assert said == losses
    assert len(list(tmp_path.iterdir())) == 3  # two files of weights and the log
    assert len((tmp_path / "log").read_text().splitlines()) == 2


def test_tables_writers_and_optimizers_that_are_used_by_handle_are_the_callers(tmp_path):
    writer = tf.summary.create_file_writer(str(tmp_path))
    initial = tf.lookup.KeyValueTensorInitializer(["a"], [3.0])
    table = tf.lookup.StaticHashTable(initial, 0.0)
    weight, count = tf.Variable(2.0), tf.Variable(0, dtype=tf.int64)
    optimizer = tf.compat.v1.train.MomentumOptimizer(0.1, 0.9)

    @tf.function
    def step(words):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weight * table.lookup(words))
        optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])
        count.assign_add(1)
        with writer.as_default(step=count):
            tf.summary.scalar("loss", loss)
        return loss

    words = tf.constant(["a", "b"])
    placed = tfplace.place(step, example_args=(words,), **QUICK)
    writer.flush()
    (log,) = tmp_path.iterdir()
    before = log.read_bytes()
    assert weight.numpy() == 2.0 and b"loss" not in before
    placed(words), placed(words)
    placed.sync()
    writer.flush()
    # 2, then 2 - 0.1 * 3: momentum is the caller's, too.
    assert weight.numpy() == pytest.approx(2.0 - 0.3 - (0.3 + 0.27)) and count.numpy() == 2
    assert log.read_bytes()[: len(before)] == before and log.read_bytes().count(b"loss") == 2


def test_arguments_may_have_names():
    @tf.function
    def step(x, power=2, *, scale):
        return scale * x**power

    placed = tfplace.place(step, {"x": tf.ones(3), "scale": tf.constant(2.0)}, **QUICK)
    assert placed(2.0 * tf.ones(3), scale=tf.constant(3.0)).numpy().tolist() == [12.0] * 3
    assert placed(scale=tf.constant(3.0), x=tf.ones(2)).numpy().tolist() == [3.0] * 2
    with pytest.raises(tfplace.TfplaceError, match="missing a required argument: 'scale'"):
        placed(tf.ones(3))
    with pytest.raises(tfplace.TfplaceError, match="'x' can't be fed: it is of dtype int32"):
        placed(tf.range(3), scale=tf.constant(3.0))
    assert repr(placed).startswith("<tfplace.PlacedStep step((3,), ()), 0 variables, ")
    assert len(repr(placed)) < 200 and len(repr(placed.report)) < 300


def test_shapes_that_the_step_can_not_have_are_told():
    weight = tf.Variable(tf.ones((3, 2)))
    placed = tfplace.place(lambda x: x @ weight, [tf.ones((4, 3))], **QUICK)
    with pytest.raises(
        tfplace.TfplaceError, match=r"shapes \(4, 5\), where it was placed for \(4, 3\).*call it"
    ):
        placed(tf.ones((4, 5)))


def test_an_argument_may_become_a_tensor_or_none_on_the_same_variables():
    weight = tf.Variable(tf.ones((3, 1)))

    @tf.function
    def step(x, pair=(None, None), *, scale=None):
        one, other = pair
        loss = tf.reduce_mean(x @ weight)
        loss *= 1.0 if one is None else tf.reduce_sum(one) * (2.0 if other is None else 3.0)
        loss *= 1.0 if scale is None else tf.reduce_sum(scale["by"])
        weight.assign_add(tf.ones_like(weight))
        return loss

    x, y = tf.ones((4, 3)), tf.ones(2)
    placed = tfplace.place(step, [x], **QUICK)
    calls = [((x,), {}), ((x, (y, None)), {}), ((x, (y, y)), {"scale": {"by": y}}), ((x[:3],), {})]
    calls += [((x[:3], (tf.ones(5), None)), {}), ((x, (None, None)), {"scale": {"by": tf.ones(3)}})]
    for count, factor in enumerate((1.0, 4.0, 12.0, 1.0, 10.0, 3.0), 1):
        args, keywords = calls[count - 1]
        assert float(placed(*args, **keywords)) == pytest.approx(3 * count * factor)
    assert len(placed.variables) == 1
    assert float(tf.function(placed)(x, (y, None))) == pytest.approx(3 * 7 * 4.0)
    with pytest.raises(tfplace.TfplaceError, match=r'scale: found 2.0 .*"scale": scale}'):
        placed(x, scale=2.0)


def test_an_argument_that_the_step_can_not_do_without_is_told():
    placed = tfplace.place(lambda x, y, z=None: x + y.shape[0], [tf.ones(4)] * 2, **QUICK)
    said = r"example: y, .*no attribute 'shape'; .*example_args=\(x, None, None\)"
    with pytest.raises(tfplace.TfplaceError, match=said):
        placed(tf.ones(4), None)
    with pytest.raises(tfplace.TfplaceError, match=r"a tf\.function.*z;.*example_args=\(x, y, z\)"):
        tf.function(placed)(tf.ones(4), tf.ones(4), tf.ones(4))


def test_what_is_placed_again_is_proven_by_structure(monkeypatch):
    def emit_another(source, devices, made, extra_files):
        emit(source, devices, made, extra_files)
        model = sniff(made).proto
        for _, nodes in bodies(model.meta_graphs[0].graph_def):
            for node in nodes:
                node.op = "Sub" if node.op == "AddV2" else node.op
        (made / "saved_model.pb").write_bytes(model.SerializeToString())

    placed = tfplace.place(lambda x: x + 3.0, [tf.ones(4)], **QUICK)
    monkeypatch.setattr("tfplace.api.placings.emit", emit_another)
    with pytest.raises(tfplace.TfplaceError, match="proving that only devices have changed"):
        placed(tf.ones(5))


def test_tasks_that_this_process_is_not_connected_to_are_told():
    with pytest.raises(tfplace.TfplaceError, match=r"worker/task:0.*three lines") as raised:
        tfplace.place(lambda x: x + 1.0, [tf.ones(3)], cluster="workers:2")
    _, *lines = str(raised.value).splitlines()
    assert len(lines) == 3 and 'cluster="workers:2"' in lines[1].replace("'", '"')
    for line in lines:
        compile(line.strip(), "what to paste", "exec")


def test_example_args_that_are_no_arguments_are_told():
    def step(x):
        return x

    with pytest.raises(tfplace.TfplaceError, match=r"next\(iter\(dataset\)\)"):
        tfplace.place(step, tf.data.Dataset.range(3))
    for single in (np.ones(3), tf.ones(3), 3.0, "text"):
        with pytest.raises(tfplace.TfplaceError, match=r"give `\(x,\)`"):
            tfplace.place(step, single)
    with pytest.raises(tfplace.TfplaceError, match="too many positional arguments"):
        tfplace.place(step, (tf.ones(3), tf.ones(3)))
    with pytest.raises(tfplace.TfplaceError, match=r"an argument is a \w*Dataset"):
        tfplace.place(step, [tf.data.Dataset.range(3)])


def test_ragged_and_sparse_tensors_are_fed_and_returned():
    table = tf.Variable(tf.reshape(tf.range(14.0), [7, 2]))

    @tf.function
    def step(ids, scaled):
        rows = tf.gather(table, ids["ids"])
        table.assign_add(tf.sparse.to_dense(scaled))
        return rows, scaled * 2.0, tf.reduce_sum(rows)

    ids = {"ids": tf.ragged.constant([[1, 2], [3], [], [6, 0, 1]])}
    scaled = tf.sparse.from_dense(tf.eye(7, 2))
    placed = tfplace.place(step, (ids, scaled), **QUICK)
    assert placed.report.verified.outputs_equal
    want = step(ids, scaled)
    for one, other in zip(placed(ids, scaled), want, strict=True):
        parts = [tf.nest.flatten(each, expand_composites=True) for each in (one, other)]
        for part, right in zip(*parts, strict=True):
            np.testing.assert_array_equal(part, right)
    longer = {"ids": tf.ragged.constant([[5], [3, 4]])}
    assert placed(longer, scaled)[0].to_list() == step(longer, scaled)[0].to_list()
    with pytest.raises(tfplace.TfplaceError, match="another structure than the example"):
        placed({"ids": tf.zeros([2, 2], tf.int32)}, scaled)
    plain = tfplace.place(tf.function(lambda x: x * 2.0), (tf.ones([3]),), **QUICK)
    assert plain(tf.Variable(tf.ones([3]))).numpy().tolist() == [2.0] * 3


def test_numbers_become_what_the_example_had_and_other_floats_are_told():
    placed = tfplace.place(
        lambda x, scale: scale * tf.reduce_sum(x), (tf.ones((4, 3)), np.float32(2.0)), **QUICK
    )
    assert float(placed(tf.ones((5, 3)), 3.0)) == 45.0
    for others in ((tf.ones((4, 3), tf.float64), 2.0), (tf.ones((4, 3)), np.float64(2.0))):
        with pytest.raises(tfplace.TfplaceError, match="it is of dtype float64; wanted a tensor"):
            placed(*others)
    with pytest.raises(tfplace.TfplaceError, match="missing a required argument: 'x'"):
        tfplace.place(tf.function(lambda x: x))
    for sizes in (3, [2.5]):
        with pytest.raises(tfplace.TfplaceError, match="wanted a list of whole numbers"):
            tfplace.place(lambda x: x, [tf.ones(3)], sizes)


def test_what_is_no_tensor_becomes_what_an_input_signature_names():
    pair = {"a": tf.TensorSpec([None]), "b": (tf.TensorSpec([], tf.int32),)}

    @tf.function(input_signature=[pair])
    def step(pair):
        return pair["a"] + tf.cast(pair["b"][0], tf.float32)

    placed = tfplace.place(step, ({"a": np.ones(3), "b": (1,)},), **QUICK)
    for a in (np.array([0.1, 2.0]), np.array([1, 2]), [1, 0.5], tf.Variable([1.0, 2.0])):
        for b in (2, np.float64(2.7), np.int64(2)):  # NumPy's floats lose what isn't whole
            given = {"a": a, "b": (b,)}
            assert placed(given).numpy().tolist() == step(given).numpy().tolist()
    for others in ((tf.ones(2, tf.float64), 2), (np.ones(2), 2.7), (np.ones((2, 2)), 2)):
        given = {"a": others[0], "b": others[1:]}
        with pytest.raises(TypeError):
            step(given)
        with pytest.raises(tfplace.TfplaceError, match="calling a placed step: "):
            placed(given)


def test_a_seeded_layer_draws_what_it_draws_without_placing():
    """A tf_keras layer takes its op's seed when it is traced: traced again, it takes another."""
    x, drawn = tf.ones((1, 64)), []
    for is_placed in (False, True):
        tf.random.set_seed(5)
        layer = tf_keras.layers.Dropout(0.5, seed=3)
        step = tf.function(lambda x, layer=layer: layer(x, training=True))
        called = tfplace.place(step, [x], **QUICK) if is_placed else step
        drawn.append([called(x).numpy() for _ in range(3)])
    np.testing.assert_array_equal(drawn[0], drawn[1])


def test_gradients_for_other_shapes_are_those_of_the_same_variables():
    weight = tf.Variable([[2.0], [3.0]])
    options = QUICK | {"verify": "structure"}
    placed = tfplace.place(lambda x: tf.reduce_sum(x @ weight), [tf.ones((4, 2))], **options)
    for size in (4, 3):
        with tf.GradientTape() as tape:
            loss = placed(tf.ones((size, 2)))
        (gradient,) = tape.gradient(loss, placed.variables)
        assert gradient.numpy().tolist() == [[size], [size]]


def test_parts_of_variables_and_generators_are_updated_too():
    weight, generator = tf.Variable(tf.zeros(4)), tf.random.Generator.from_seed(1)
    updates = {
        lambda x: weight[1:3].assign(x): TRAIN,
        lambda x: x + generator.normal([2]): TRAIN,
        lambda x: weight + tf.scatter_nd([[1], [2]], x, [4]): INFER,
    }
    for function, signature in updates.items():
        assert FlatStep(tf.function(function), Call((tf.ones(2),))).signature == signature


def test_within_a_function_shapes_have_to_be_known():
    placed = tfplace.place(lambda x: tf.reduce_sum(x) / x.shape[0], [tf.ones(4)], **QUICK)
    assert float(tf.function(lambda x: placed(x))(tf.ones(4))) == 1.0
    for shape in ([None], None, [5]):
        outer = tf.function(lambda x: placed(x), input_signature=[tf.TensorSpec(shape)])
        with pytest.raises(tfplace.TfplaceError, match=r"within a tf\.function.*give batch_sizes"):
            outer(tf.ones(5))


def test_a_module_with_a_train_step_is_no_keras_model():
    class Scaling(tf.Module):
        def __init__(self):
            super().__init__()
            self.weight = tf.Variable(2.0)

        def __call__(self, x):
            return self.weight * x

        def train_step(self, x):
            self.weight.assign(tf.reduce_mean(x))

    module = Scaling()
    assert float(tfplace.place(module, [tf.constant(3.0)], **QUICK)(tf.constant(5.0))) == 10.0
    placed = tfplace.place(module.train_step, [tf.ones(2)], **QUICK)
    assert placed(7.0 * tf.ones(2)) is None
    placed.sync()
    assert float(module.weight) == 7.0


def test_a_keras_model_takes_the_last_part_of_a_batch_and_resets_its_metrics():
    model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    x, y = np.ones((8, 3), np.float32), np.ones((8, 1), np.float32)
    placed = tfplace.place(model, (x, y), **QUICK)
    assert float(placed(x, y)["loss"]) == pytest.approx(4.0)
    # Keras weighs a loss by its batch: (8 * 4 + 2 * 9) / 10
    assert float(placed(x[:2], y[:2] - 1.0)["loss"]) == pytest.approx(5.0)
    placed.reset_metrics()
    assert float(placed(x[:2], y[:2] - 1.0)["loss"]) == pytest.approx(9.0)
    function = tfplace.place(lambda v: v, [tf.ones(3)], **QUICK)
    for wants_a_model in (function.reset_metrics, function.fit):
        with pytest.raises(tfplace.TfplaceError, match="made of a function"):
            wants_a_model()


def test_logical_devices_of_this_process_are_placed_on():
    code = """
import tensorflow as tf, tfplace
cpu, = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
weight = tf.Variable(tf.ones((3, 3)))
placed = tfplace.place(
    lambda x: x @ weight, [tf.ones((2, 3))], max_trials=3, pin=[".=CPU:1"],
    algorithm="local_search", budget_seconds=2.0)
assert [d["name"] for d in placed.report.cluster["devices"]] == ["/device:CPU:0", "/device:CPU:1"]
assert placed.variables[0].device.endswith("CPU:1"), placed.variables[0].device
assert placed(tf.ones((1, 3))).numpy().tolist() == [[3.0] * 3]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("way", ["example", "feed"])
def test_its_own_runs_are_fed_the_example(way, tmp_path):
    """Ids that are sorted, and a text that ends with zeros: made-up ones would fail."""
    weight = tf.Variable(tf.ones((3, 2)))

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 3]), tf.TensorSpec([None], tf.int64), tf.TensorSpec([], tf.string),
            tf.TensorSpec([7]),
        ]
    )  # fmt: skip
    def step(x, ids, text, unread):
        with tf.GradientTape() as tape:
            numbers = tf.ensure_shape(tf.io.parse_tensor(text, tf.int64), [3])[:2]
            tf.debugging.assert_equal(tf.gather(ids, [1, 6]), numbers)
            loss = tf.reduce_sum(tf.math.segment_mean(x @ weight, ids) ** 2)
        weight.assign_sub(0.01 * tape.gradient(loss, weight))
        return loss

    x = np.random.default_rng(0).normal(size=(8, 3)).astype("f4")
    ids = np.array([0, 1, 1, 2, 2, 2, 3, 3])
    last = 2**56 if way == "feed" else 0  # numpy's strings have no zeros at their end
    text = tf.io.serialize_tensor(tf.constant([1, 3, last], tf.int64))
    options = {**QUICK, "verify": "run", "shards": 1}
    args = (x, ids, text, np.ones(7, np.float32))
    if way == "feed":
        path = str(tmp_path / "feed.npz")
        np.savez(path, x=x, ids=ids, text=np.array(text.numpy()), unread=args[3])
        placed = tfplace.place(step, **options, feed=path)
    else:
        placed = tfplace.place(step, args, **options, batch_size=8)
    verified = placed.report.verified
    assert verified.outputs_equal, verified.not_compared
    assert all("empty batch" in each for each in verified.not_compared)
    assert float(placed(*args)) == pytest.approx(float(step(*args)), rel=1e-5)


@pytest.mark.parametrize("shards", [1, 2])
def test_a_step_that_recomputes_trains(shards, capfd):
    """The gradient of tf.recompute_grad has none of its own, with which TensorFlow would save."""
    weights = [tf.Variable(0.5 * tf.eye(2)) for _ in range(2)]

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            for weight in weights:
                x = tf.recompute_grad(lambda x, weight=weight: x + tf.tanh(x @ weight))(x)
            loss = tf.reduce_mean(x * x)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        return loss

    x = tf.constant([[1.0, 2.0], [3.0, -1.0]])
    placed = tfplace.place(step, (x,), **QUICK | {"algorithm": "single", "shards": shards})
    assert "Traceback" not in capfd.readouterr().err
    found = [float(placed(x)) for _ in range(3)]
    assert found == pytest.approx([float(step(x)) for _ in range(3)], rel=1e-5)


def test_custom_gradients_of_a_step_that_is_placed_stay():
    weight = tf.Variable([[2.0]])

    @tf.custom_gradient
    def doubled(x):
        return x, lambda upstream: 2.0 * upstream

    placed = tfplace.place(lambda x: doubled(x @ weight), [tf.ones((3, 1))], **QUICK)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(placed(tf.ones((3, 1))))
    assert tape.gradient(loss, placed.variables)[0].numpy().tolist() == [[6.0]]
