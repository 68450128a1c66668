"""What of a model is not its run goes on to be made of the unsplit step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rewrite.signature_key import whole_signature


def redirect_signatures(
    meta_graph: Any, name: str, whole_tensor: Callable[[str], str], adds_whole: bool
) -> None:
    """All signatures but the split one run the unsplit ops; one more runs the unsplit step.

    They feed these, too: an input may have a default value, and move with what that is read from.

    Args:
      meta_graph: changed in place.
      name: of the signature that is split.
      whole_tensor: from a tensor's name, or an op's, to that of the unsplit step.
      adds_whole: whether that is the split one's copy; else it is made elsewhere, if at all.
    """
    if adds_whole:
        whole = meta_graph.signature_def[whole_signature(name, meta_graph.signature_def)]
        whole.CopyFrom(meta_graph.signature_def[name])
    for key, signature in meta_graph.signature_def.items():
        if key != name:
            for info in (*signature.inputs.values(), *signature.outputs.values()):
                rename_tensors(info, whole_tensor)


def rename_tensors(info: Any, new_name: Callable[[str], str]) -> None:
    """Gives the names in a TensorInfo to `new_name`: a tensor's, a sparse one's, or a composite's.

    Args:
      info: changed in place.
      new_name: from a name to what stands there instead.
    """
    if info.WhichOneof("encoding") == "coo_sparse":
        for field, value in info.coo_sparse.ListFields():
            setattr(info.coo_sparse, field.name, new_name(value))
    elif info.WhichOneof("encoding") == "composite_tensor":
        for each in info.composite_tensor.components:
            rename_tensors(each, new_name)
    elif info.name:
        info.name = new_name(info.name)
