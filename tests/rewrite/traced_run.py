"""Runs a graph on two CPU devices and says what ran where."""

import tensorflow as tf

v1 = tf.compat.v1


def traced_run(graph_def, fetches, feeds):
    """The fetched values, and (name, device such as "CPU:1") of each op that ran."""
    config = v1.ConfigProto(device_count={"CPU": 2})
    # Without inlining and pruning, what runs has the names that the graph has.
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    options, metadata = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), v1.RunMetadata()
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        tf.import_graph_def(graph_def, name="")
        values = session.run(fetches, feeds, options, metadata)
    return values, [
        (node.node_name, statistics.device[-5:])
        for statistics in metadata.step_stats.dev_stats
        for node in statistics.node_stats
    ]
