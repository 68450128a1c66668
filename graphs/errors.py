"""Everything that can be wrong with what a user hands in, one class per kind.

Each message says what was being done, what was found, what was wanted, and what to do.
`exit_status` is the status with which the command line ends (the contract,
`tfplace/docs/contract.md`, section 2).
"""

import re


def one_line(error: Exception, most: int = 200) -> str:
    """The first characters of what an exception says; its type where it says nothing."""
    return " ".join(str(error).split())[:most] or type(error).__name__


class TfplaceError(Exception):
    """Base of all expected failures; never raised itself."""

    exit_status = 70


class UsageError(TfplaceError):
    """The command line asks for something that does not exist or does not go together."""

    exit_status = 1


class NothingToSplitError(UsageError):
    """No input of a step has a batch, or no op works on parts of it."""


class BadInputError(TfplaceError):
    """Base of all that is wrong with files and folders; never raised itself."""

    exit_status = 2


class ModelError(BadInputError):
    """The model file is missing, damaged, of no known kind, or asks for the impossible."""


class ShapesRefusedError(ModelError):
    """An op can't have the shapes that follow from those of the inputs.

    Attributes: what TensorFlow says; that, and which op it is; the least numbers in it.
    """

    def __init__(self, op: str, op_type: str, why: str):
        self.why = why
        self.refusal = f"{op!r} ({op_type}) refuses: {why[:200]}"
        self.sizes = sorted({int(size) for size in re.findall(r"\b[1-9]\d{0,4}\b", why)})[:2]
        super().__init__(
            f"inferring tensor shapes: what is fed gives shapes that {self.refusal}; "
            "wanted feeds that fit; check --batch_size and --input_shape"
        )


class FetchError(ModelError):
    """A fetch, feed or signature name is not in the model."""


class FeedError(BadInputError):
    """An input array does not fit the tensor that it is fed to."""


class ClusterError(BadInputError):
    """The cluster is unknown, its file is malformed, or its devices are not there."""


class PlacementError(BadInputError):
    """A placement file is malformed or names ops or devices that do not exist."""


class JobsError(BadInputError):
    """A file of jobs is missing, is no text, or holds no job."""


class CheckpointError(BadInputError):
    """A checkpoint is missing, damaged, or none of ours."""


class NotProvenError(BadInputError):
    """Nothing of a split step could be proven here, for want of memory, time or kernels."""


class OutputError(BadInputError):
    """The place to write to exists already or can't be written."""


class MemoryLimitError(TfplaceError):
    """No placement fits the devices' memory."""

    exit_status = 3


class ConstraintError(TfplaceError):
    """Pins, colocation and kernels contradict each other."""

    exit_status = 4


class VerificationError(TfplaceError):
    """The emitted model computes something else than the model as it came: a defect."""

    exit_status = 70
