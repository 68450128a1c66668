"""Summaries of TensorBoard's plugin for hyper-parameters, without TensorBoard.

The plugin reads two summaries of a run, by tag: what it began with and how it ended. Their messages
are tensorboard/plugins/hparams/plugin_data.proto's, of which this holds what is written: fields and
numbers are a format, so the messages are described here under a name of our own.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2

START_TAG, END_TAG = "_hparams_/session_start_info", "_hparams_/session_end_info"
SUCCESS = 1
_PACKAGE = "tfplace.hparams"
_FIELD = descriptor_pb2.FieldDescriptorProto


def session_start(hparams: Mapping[str, str | float | bool], seconds: float) -> Any:
    """The tf.compat.v1.Summary of a run that begins.

    Args:
      hparams: {name: value}.
      seconds: when, since 1970.
    """
    data = _messages()["PluginData"]()
    start = data.session_start_info
    start.start_time_secs = seconds
    for name, value in hparams.items():
        kind = {bool: "bool_value", str: "string_value"}.get(type(value), "number_value")
        start.hparams[name].CopyFrom(struct_pb2.Value(**{kind: value}))
    return _summary(START_TAG, data)


def session_end(seconds: float) -> Any:
    """The tf.compat.v1.Summary of a run that ended well."""
    data = _messages()["PluginData"]()
    data.session_end_info.status = SUCCESS
    data.session_end_info.end_time_secs = seconds
    return _summary(END_TAG, data)


def _summary(tag: str, data: Any) -> Any:
    summary = tf.compat.v1.Summary()
    value = summary.value.add(tag=tag)
    value.metadata.plugin_data.plugin_name = "hparams"
    value.metadata.plugin_data.content = data.SerializeToString()
    # The plugin looks at the metadata alone; a value without a tensor would be dropped.
    value.tensor.CopyFrom(tf.make_tensor_proto([], dtype=tf.float32, shape=(0,)))
    return summary


@functools.cache
def _messages() -> Mapping[str, Any]:
    """{message name: class}."""
    file = descriptor_pb2.FileDescriptorProto(
        name="tfplace/hparams.proto",
        package=_PACKAGE,
        syntax="proto3",
        dependency=["google/protobuf/struct.proto"],
    )
    start = file.message_type.add(name="SessionStartInfo")
    entry = start.nested_type.add(name="HparamsEntry")
    entry.options.map_entry = True
    _add(entry, "key", 1, _FIELD.TYPE_STRING)
    _add(entry, "value", 2, _FIELD.TYPE_MESSAGE, ".google.protobuf.Value")
    entries = f".{_PACKAGE}.SessionStartInfo.HparamsEntry"
    _add(start, "hparams", 1, _FIELD.TYPE_MESSAGE, entries).label = _FIELD.LABEL_REPEATED
    _add(start, "start_time_secs", 5, _FIELD.TYPE_DOUBLE)
    end = file.message_type.add(name="SessionEndInfo")
    _add(end, "status", 1, _FIELD.TYPE_INT32)  # an enum there: the same on the wire
    _add(end, "end_time_secs", 2, _FIELD.TYPE_DOUBLE)
    data = file.message_type.add(name="PluginData")
    _add(data, "version", 1, _FIELD.TYPE_INT32)
    _add(data, "session_start_info", 3, _FIELD.TYPE_MESSAGE, f".{_PACKAGE}.SessionStartInfo")
    _add(data, "session_end_info", 4, _FIELD.TYPE_MESSAGE, f".{_PACKAGE}.SessionEndInfo")
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    names = ("SessionStartInfo", "SessionEndInfo", "PluginData")
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in names
    }


def _add(message: Any, name: str, number: int, kind: Any, of_type: str = "") -> Any:
    field = message.field.add(name=name, number=number, type=kind, label=_FIELD.LABEL_OPTIONAL)
    if of_type:
        field.type_name = of_type
    return field
