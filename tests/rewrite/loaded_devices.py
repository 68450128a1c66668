"""Child process: where an emitted model's variables and ops are after loading it again.

Takes {"path", "signature", "feeds"}; sends the devices of variables, by attribute, and of ops
that ran, by name.
"""

from __future__ import annotations

import tensorflow as tf

from graphs.host.parent import Parent

v1 = tf.compat.v1


def _short(device: str) -> str:
    return device.rpartition("/")[2]


def main(parent: Parent) -> None:
    request = parent.request
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    tf.config.set_soft_device_placement(True)
    options = tf.saved_model.LoadOptions(experimental_variable_policy="save_variable_devices")
    loaded = tf.saved_model.load(request["path"], options=options)
    variables = {name: _short(getattr(loaded, name).device) for name in ("first", "second")}
    ran = v1.RunMetadata()
    with tf.Graph().as_default():
        config = v1.ConfigProto(device_count={"CPU": 2}, allow_soft_placement=True)
        # Without inlining and pruning, what runs has the names that the model has.
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        with v1.Session(config=config) as session:
            meta_graph = v1.saved_model.load(session, ["serve"], request["path"])
            signature = meta_graph.signature_def[request["signature"]]
            feeds = {signature.inputs[k].name: v for k, v in request["feeds"].items()}
            fetches = [info.name for info in signature.outputs.values()]
            trace = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
            session.run(fetches, feeds, trace, ran)
    where = {
        node.node_name: _short(statistics.device)
        for statistics in ran.step_stats.dev_stats
        for node in statistics.node_stats
    }
    parent.tell((variables, where))
