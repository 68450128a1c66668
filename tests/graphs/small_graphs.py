"""Small TensorFlow graphs, and how a test runs one."""

import tensorflow as tf

v1 = tf.compat.v1


def matmul_graph(inner, width, also=lambda product: None):
    """The GraphDef of a product of a placeholder [?, inner] and a variable, and its text.

    `also` adds other ops that use the product.
    """
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, inner], name="x")
        w = tf.raw_ops.VarHandleOp(
            dtype=tf.float32, shape=[inner, width], shared_name="w", name="w"
        )
        read = tf.raw_ops.ReadVariableOp(resource=w, dtype=tf.float32, name="read")
        product = tf.raw_ops.MatMul(a=x, b=read, name="product")
        also(product)
        tf.raw_ops.AsString(input=product, name="text")
    return graph.as_graph_def()


def run(graph_def, fetches, feeds):
    """What a session of TensorFlow 1 fetches from a graph."""
    with tf.Graph().as_default(), v1.Session() as session:
        tf.import_graph_def(graph_def, name="")
        return session.run(fetches, feeds)
