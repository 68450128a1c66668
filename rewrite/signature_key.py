"""How a run's tensors are called in the signature that is made of it."""


def signature_key(tensor: str) -> str:
    """ "op" for its first output or the op itself, "op_1" for others."""
    op, _, index = tensor.partition(":")
    return op if index in ("", "0") else f"{op}_{index}"
