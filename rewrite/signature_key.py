"""What the signature that is made of a graph's run is called, and its inputs and outputs."""

WHOLE_SUFFIX = "_whole"
"""The unsplit step of a split signature NAME is NAME_whole."""


def run_signature(mode: str) -> str:
    """The name of the signature for a run in this mode, "train" or "inference"."""
    return "train_step" if mode == "train" else "serving_default"


def signature_key(tensor: str) -> str:
    """ "op" for its first output or the op itself, "op_1" for others."""
    op, _, index = tensor.partition(":")
    return op if index in ("", "0") else f"{op}_{index}"
