"""What the signature that is made of a graph's run is called, and its inputs and outputs."""

from collections.abc import Container

from graphs.names import free_name

_WHOLE_SUFFIX = "_whole"


def whole_signature(name: str, signatures: Container[str]) -> str:
    """The signature of a split step's unsplit one, NAME_whole, beside a model's own signatures."""
    return free_name(f"{name}{_WHOLE_SUFFIX}", signatures)


def run_signature(mode: str) -> str:
    """The name of the signature for a run in this mode, "train" or "inference"."""
    return "train_step" if mode == "train" else "serving_default"


def signature_key(tensor: str) -> str:
    """ "op" for its first output or the op itself, "op_1" for others."""
    op, _, index = tensor.partition(":")
    return op if index in ("", "0") else f"{op}_{index}"
