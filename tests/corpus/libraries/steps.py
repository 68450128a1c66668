"""Training steps that users of libraries write themselves, or that no Keras model has."""

from tests.corpus.libraries.entry import fit, ids, model, spec, step


def _descent(loss, variables, optimizer):
    import tensorflow as tf

    def train(*batch):
        with tf.GradientTape() as tape:
            value = loss(*batch)
        optimizer.apply_gradients(zip(tape.gradient(value, variables()), variables(), strict=True))
        return value

    return train


def _adam():
    import tf_keras

    return tf_keras.optimizers.Adam(1e-3)


@model("recommenders")
def retrieval(folder):
    import tensorflow_recommenders as tfrs
    import tf_keras as k

    class TwoTowers(tfrs.Model):
        def __init__(self):
            super().__init__()
            self.user, self.item = k.layers.Embedding(50, 8), k.layers.Embedding(40, 8)
            self.task = tfrs.tasks.Retrieval()

        def compute_loss(self, inputs, training=False):
            return self.task(
                self.user(inputs["user"]), self.item(inputs["item"]), compute_metrics=False
            )

    made = TwoTowers()
    made.compile(optimizer=k.optimizers.Adagrad(0.1))
    fit(folder, made, {"user": ids(None), "item": ids(None)})


@model("recommenders")
def ranking_dcn(folder):
    import tensorflow_recommenders as tfrs
    import tf_keras as k

    class Crossed(tfrs.Model):
        def __init__(self):
            super().__init__()
            self.embedding, self.cross = k.layers.Embedding(50, 8), tfrs.layers.dcn.Cross()
            self.head = k.Sequential([k.layers.Dense(16, "relu"), k.layers.Dense(1)])
            self.task = tfrs.tasks.Ranking(k.losses.MeanSquaredError())

        def compute_loss(self, inputs, training=False):
            given = k.layers.Flatten()(self.embedding(inputs["ids"]))
            return self.task(labels=inputs["rating"], predictions=self.head(self.cross(given)))

    made = Crossed()
    made.compile(optimizer=k.optimizers.Adam())
    fit(folder, made, {"ids": ids(None, 4), "rating": spec(None, 1)})


@model("gpflow")
def gpflow_svgp(folder):
    import gpflow
    import numpy as np

    made = gpflow.models.SVGP(
        gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Gaussian(),
        np.linspace(0, 1, 10)[:, None], num_data=100,
    )  # fmt: skip
    train = _descent(
        lambda x, y: made.training_loss((x, y)), lambda: made.trainable_variables, _adam()
    )
    step(folder, train, spec(None, 1, dtype="float64"), spec(None, 1, dtype="float64"))


@model("probability")
def probability_autoencoder(folder):
    import tensorflow_probability as tfp
    import tf_keras as k

    layers, tfd = tfp.layers, tfp.distributions
    prior = tfd.Independent(tfd.Normal([0.0] * 4, 1.0), 1)
    made = k.Sequential(
        [
            k.Input((12,)),
            k.layers.Dense(16, "relu"),
            k.layers.Dense(layers.MultivariateNormalTriL.params_size(4)),
            layers.MultivariateNormalTriL(
                4, activity_regularizer=layers.KLDivergenceRegularizer(prior)
            ),
            k.layers.Dense(16, "relu"),
            k.layers.Dense(12),
            layers.IndependentBernoulli(12),
        ]
    )
    made.compile(optimizer=_adam(), loss=lambda y, of: -of.log_prob(y))
    fit(folder, made, spec(None, 12), spec(None, 12))


@model("probability")
def probability_flow(folder):
    import tensorflow_probability as tfp

    tfb, tfd = tfp.bijectors, tfp.distributions
    flow = tfb.AutoregressiveNetwork(params=2, hidden_units=[16, 16])
    normal = tfd.Sample(tfd.Normal(0.0, 1.0), [4])
    made = tfd.TransformedDistribution(normal, tfb.MaskedAutoregressiveFlow(flow))

    def loss(x):
        return -made.log_prob(x)

    import tensorflow as tf

    loss(tf.ones([2, 4]))
    train = _descent(
        lambda x: tf.reduce_mean(loss(x)), lambda: flow.trainable_variables, _adam()
    )  # fmt: skip
    step(folder, train, spec(None, 4))


@model("probability")
def probability_bayesian(folder):
    import tensorflow_probability as tfp
    import tf_keras as k

    made = k.Sequential(
        [
            k.Input((6,)),
            tfp.layers.DenseFlipout(16, activation="relu"),
            tfp.layers.DenseReparameterization(3),
        ]
    )
    loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(optimizer=_adam(), loss=loss)
    fit(folder, made, spec(None, 6), ids(None))


@model("more")
def sonnet_attention(folder):
    import sonnet as snt
    import tensorflow as tf

    made = snt.Sequential(
        [snt.Linear(16), tf.nn.relu, snt.LayerNorm(-1, True, True), snt.Linear(3)]
    )
    made(tf.ones([2, 6]))

    def loss(x, y):
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=made(x))
        return tf.reduce_mean(each)

    optimizer = snt.optimizers.Adam(1e-3)

    def train(x, y):
        with tf.GradientTape() as tape:
            value = loss(x, y)
        optimizer.apply(tape.gradient(value, made.trainable_variables), made.trainable_variables)
        return value

    step(folder, train, spec(None, 6), ids(None))


@model("agents")
def agents_dqn(folder):
    import tensorflow as tf
    from tf_agents.agents.dqn import dqn_agent
    from tf_agents.networks import q_network
    from tf_agents.specs import tensor_spec
    from tf_agents.trajectories import time_step, trajectory

    seen = tensor_spec.TensorSpec([5], tf.float32)
    acts = tensor_spec.BoundedTensorSpec([], tf.int32, 0, 2)
    agent = dqn_agent.DqnAgent(
        time_step.time_step_spec(seen), acts, optimizer=_adam(),
        q_network=q_network.QNetwork(seen, acts, fc_layer_params=(16, 16)),
    )  # fmt: skip
    agent.initialize()

    def train(observation, action, reward, discount, kind):
        seen_so = trajectory.Trajectory(kind, observation, action, (), kind, reward, discount)
        return agent.train(seen_so).loss

    two = (None, 2)
    numbers = (spec(*two), spec(*two), ids(*two))
    step(folder, train, spec(None, 2, 5), ids(*two), *numbers)
