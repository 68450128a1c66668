"""Writes a model of the corpus as the SavedModel 1/ of its folder; returns its path."""

from __future__ import annotations

import tensorflow as tf

v1 = tf.compat.v1


def save(module, folder, options=None, **signatures):
    """A module, with these of its methods as signatures."""
    tf.saved_model.save(module, str(folder / "1"), signatures or None, options)
    return str(folder / "1")


def serve(module, folder):
    """A module whose method f is what it serves."""
    return save(module, folder, serving_default=module.f)


def save_session(session, folder, signatures=None, **more):
    """A session's graph and variables."""
    builder = v1.saved_model.Builder(str(folder / "1"))
    builder.add_meta_graph_and_variables(session, ["serve"], signatures, **more)
    builder.save()
    return str(folder / "1")


def serve_session(session, folder, inputs, outputs, **more):
    """A session's graph and variables, and what it serves."""
    signature = v1.saved_model.predict_signature_def(inputs, outputs)
    return save_session(session, folder, {"serving_default": signature}, **more)
