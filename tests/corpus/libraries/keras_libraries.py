"""Compiled Keras models of libraries, saved with the step that `fit` takes."""

from tests.corpus.libraries.entry import fit, ids, model, spec

CLASSES = "sparse_categorical_crossentropy"


def _compiled(made, loss=None, **more):
    import tf_keras

    if loss is None:
        loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(optimizer=tf_keras.optimizers.Adam(1e-3), loss=loss, **more)
    return made


def _kecam(folder, made):
    fit(folder, _compiled(made, CLASSES), spec(None, 32, 32, 3), ids(None))


@model("kecam")
def kecam_efficientnet_v2(folder):
    from keras_cv_attention_models import efficientnet as e

    _kecam(
        folder,
        e.EfficientNetV2(
            expands=[1, 4], out_channels=[8, 16], depthes=[1, 2], strides=[1, 2],
            se_ratios=[0, 0.25],
            first_conv_filter=8, output_conv_filter=32, input_shape=(32, 32, 3), num_classes=3,
            pretrained=None,
        ),
    )  # fmt: skip


@model("kecam")
def kecam_coatnet(folder):
    from keras_cv_attention_models import coatnet

    _kecam(
        folder,
        coatnet.CoAtNet(
            num_blocks=[1, 1, 1, 1], out_channels=[8, 16, 16, 16], stem_width=8, head_dimension=8,
            input_shape=(32, 32, 3), num_classes=3, pretrained=None,
        ),
    )  # fmt: skip


@model("kecam")
def kecam_resnest(folder):
    from keras_cv_attention_models import aotnet

    _kecam(
        folder,
        aotnet.AotNet(
            num_blocks=[1, 1], out_channels=[16, 32], strides=[1, 2], attn_types="sa",
            stem_width=8, input_shape=(32, 32, 3), num_classes=3,
        ),
    )  # fmt: skip


@model("kecam")
def kecam_mobilevit(folder):
    from keras_cv_attention_models import mobilevit

    _kecam(folder, mobilevit.MobileViT_XXS(input_shape=(32, 32, 3), num_classes=3, pretrained=None))


def _columns(deepctr_columns, num=4):
    make = deepctr_columns.SparseFeat
    columns = [make(f"c{i}", vocabulary_size=20, embedding_dim=4) for i in range(num)]
    return [*columns, deepctr_columns.DenseFeat("d", 3)]


def _deepctr(folder, name, **more):
    from deepctr import feature_column, models

    columns = _columns(feature_column)
    made = getattr(models, name)(columns, columns, **more)
    inputs = {c.name: spec(None, 3) if c.name == "d" else ids(None, 1) for c in columns}
    fit(folder, _compiled(made, "binary_crossentropy"), inputs, spec(None, 1))


@model("deepctr")
def deepctr_deepfm(folder):
    _deepctr(folder, "DeepFM", dnn_hidden_units=(16, 8))


@model("deepctr")
def deepctr_xdeepfm(folder):
    _deepctr(folder, "xDeepFM", dnn_hidden_units=(16, 8), cin_layer_size=(8, 8))


@model("deepctr")
def deepctr_autoint(folder):
    _deepctr(folder, "AutoInt", dnn_hidden_units=(16, 8), att_layer_num=2)


@model("deepctr")
def deepctr_dcn_mix(folder):
    _deepctr(folder, "DCNMix", dnn_hidden_units=(16, 8))


def _segmenter(folder, name, *more, **named):
    from keras_unet_collection import models

    made = getattr(models, name)((32, 32, 3), *more, n_labels=2, **named)
    fit(folder, _compiled(made, CLASSES), spec(None, 32, 32, 3), ids(None, 32, 32))


@model("unet_collection")
def unet_2d(folder):
    _segmenter(folder, "unet_2d", [4, 8, 16], batch_norm=True)


@model("unet_collection")
def unet_attention(folder):
    _segmenter(folder, "att_unet_2d", [4, 8, 16], batch_norm=True)


@model("unet_collection")
def unet_plus(folder):
    _segmenter(folder, "unet_plus_2d", [4, 8, 16], batch_norm=True, deep_supervision=False)


@model("unet_collection")
def unet_r2(folder):
    _segmenter(folder, "r2_unet_2d", [4, 8], batch_norm=True)


@model("larq")
def larq_binary_net(folder):
    import larq as lq
    import tf_keras as k

    binary = {"kernel_quantizer": "ste_sign", "kernel_constraint": "weight_clip"}
    made = k.Sequential(
        [
            k.Input((16, 16, 3)),
            lq.layers.QuantConv2D(8, 3, use_bias=False, **binary),
            k.layers.BatchNormalization(scale=False),
            lq.layers.QuantConv2D(8, 3, input_quantizer="ste_sign", use_bias=False, **binary),
            k.layers.BatchNormalization(scale=False),
            k.layers.Flatten(),
            lq.layers.QuantDense(3, input_quantizer="ste_sign", **binary),
            k.layers.Activation("softmax"),
        ]
    )
    fit(folder, _compiled(made, CLASSES), spec(None, 16, 16, 3), ids(None))


@model("spektral")
def spektral_gcn_batch(folder):
    import tf_keras as k
    from spektral import layers

    x, a = k.Input((8, 5)), k.Input((8, 8))
    hidden = layers.GCNConv(16, activation="relu")([x, a])
    hidden = layers.GATConv(4, attn_heads=2)([hidden, a])
    made = k.Model([x, a], k.layers.Dense(3)(layers.GlobalAvgPool()(hidden)))
    fit(folder, _compiled(made), (spec(None, 8, 5), spec(None, 8, 8)), ids(None))


def _optimized_convolutions():
    import tf_keras as k

    return k.Sequential(
        [
            k.Input((16, 16, 3)),
            k.layers.Conv2D(8, 3),
            k.layers.BatchNormalization(),
            k.layers.ReLU(),
            k.layers.MaxPool2D(),
            k.layers.Flatten(),
            k.layers.Dense(3),
        ]
    )


@model("optimization")
def pruned(folder):
    import tensorflow_model_optimization as tfmot

    made = tfmot.sparsity.keras.prune_low_magnitude(_optimized_convolutions())
    callbacks = [tfmot.sparsity.keras.UpdatePruningStep()]
    fit(folder, _compiled(made), spec(None, 16, 16, 3), ids(None), callbacks=callbacks)


@model("optimization")
def quantization_aware(folder):
    import tensorflow_model_optimization as tfmot

    made = tfmot.quantization.keras.quantize_model(_optimized_convolutions())
    fit(folder, _compiled(made), spec(None, 16, 16, 3), ids(None))


@model("optimization")
def clustered(folder):
    import tensorflow_model_optimization as tfmot

    cluster = tfmot.clustering.keras
    start = cluster.CentroidInitialization.LINEAR
    made = cluster.cluster_weights(
        _optimized_convolutions(), number_of_clusters=4, cluster_centroids_init=start
    )
    fit(folder, _compiled(made), spec(None, 16, 16, 3), ids(None))


@model("more")
def csbdeep_unet(folder):
    from csbdeep.internals.nets import common_unet

    made = common_unet(n_dim=2, n_depth=2, n_first=8, residual=True)((32, 32, 1))
    fit(folder, _compiled(made, "mae"), spec(None, 32, 32, 1), spec(None, 32, 32, 1))


@model("models")
def official_bert(folder):
    import tf_keras as k
    from official.nlp.modeling import models, networks

    encoder = networks.BertEncoderV2(
        vocab_size=99, hidden_size=32, num_layers=2, num_attention_heads=4, inner_dim=48,
        max_sequence_length=16, inner_activation=k.activations.gelu,
    )  # fmt: skip
    inputs = ("input_word_ids", "input_mask", "input_type_ids")
    made = models.BertClassifier(encoder, num_classes=3)
    fit(folder, _compiled(made), {name: ids(None, 16) for name in inputs}, ids(None))


@model("models")
def official_resnet(folder):
    import tensorflow as tf
    from official.vision.modeling import backbones, classification_model

    backbone = backbones.MobileNet(
        "MobileNetV2", 0.25, input_specs=tf.keras.layers.InputSpec(shape=[None, 32, 32, 3])
    )
    made = classification_model.ClassificationModel(
        backbone, 3, tf.keras.layers.InputSpec(shape=[None, 32, 32, 3])
    )
    fit(folder, _compiled(made), spec(None, 32, 32, 3), ids(None))


def _hub(folder, made, *batch, loss=None):
    import keras

    loss = loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(optimizer=keras.optimizers.Adam(1e-3), loss=loss, jit_compile=False)
    fit(folder, made, *batch)


@model("keras_hub")
def hub_bert(folder):
    import keras_hub

    backbone = keras_hub.models.BertBackbone(99, 2, 4, 32, 48, max_sequence_length=16)
    made = keras_hub.models.BertTextClassifier(backbone, num_classes=3, preprocessor=None)
    names = ("token_ids", "segment_ids", "padding_mask")
    _hub(folder, made, {name: ids(None, 16) for name in names}, ids(None))


@model("keras_hub")
def hub_gpt2(folder):
    import keras_hub

    backbone = keras_hub.models.GPT2Backbone(99, 2, 4, 32, 48, max_sequence_length=16)
    made = keras_hub.models.GPT2CausalLM(backbone, preprocessor=None)
    names = ("token_ids", "padding_mask")
    _hub(folder, made, {name: ids(None, 16) for name in names}, ids(None, 16))


@model("keras_hub")
def hub_gemma(folder):
    import keras_hub

    backbone = keras_hub.models.GemmaBackbone(99, 2, 4, 2, 32, 64, 8)
    made = keras_hub.models.GemmaCausalLM(backbone, preprocessor=None)
    names = ("token_ids", "padding_mask")
    _hub(folder, made, {name: ids(None, 16) for name in names}, ids(None, 16))


@model("keras_hub")
def hub_resnet(folder):
    import keras_hub

    backbone = keras_hub.models.ResNetBackbone(
        input_conv_filters=[8], input_conv_kernel_sizes=[3], stackwise_num_filters=[8, 16],
        stackwise_num_blocks=[1, 1], stackwise_num_strides=[1, 2], block_type="basic_block",
        image_shape=(32, 32, 3),
    )  # fmt: skip
    made = keras_hub.models.ImageClassifier(backbone, num_classes=3, preprocessor=None)
    _hub(folder, made, spec(None, 32, 32, 3), ids(None))


@model("keras_hub")
def hub_vit(folder):
    import keras_hub

    backbone = keras_hub.models.ViTBackbone((32, 32, 3), 8, 2, 4, 32, 48)
    made = keras_hub.models.ImageClassifier(backbone, num_classes=3, preprocessor=None)
    _hub(folder, made, spec(None, 32, 32, 3), ids(None))
