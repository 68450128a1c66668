"""Proves that a written model loads in TensorFlow 2, with the signatures that it should have.

Its files are what they should be, op by op, and a session runs them: still `tf.saved_model.load`
may refuse a function that has lost an attribute, or an object whose function is gone.
"""

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from graphs.host.asked_child import AskedChild, ChildError
from graphs.source_model import SourceModel

SECONDS = 300.0
"""After which it counts as not loaded."""
LOADS = "loads"
LOADS_ALIKE = "loads with one op of each kind"
_CHILD = "rewrite.split.prove.written.load_child"


@dataclasses.dataclass(frozen=True)
class LoadRequest:
    """What the child is to do."""

    directory: str  # the written SavedModel
    tags: Sequence[str]  # of the MetaGraphDef to load
    is_whole: bool  # whether to load all of it, however large it is
    given_directory: str  # the SavedModel as it came; "" for a graph
    given_signatures: Sequence[str]  # what that one has
    given_graph: bytes  # serialized, where the model came as a graph


@dataclasses.dataclass(frozen=True)
class LoadedModels:
    """What came of it."""

    written: str = ""  # why the written model doesn't load; "" where it does
    given: str = ""  # why the model as it came doesn't load either; "" where it does
    loads_written: bool = False  # whether the written model is loaded at present
    is_fewer: bool = False  # whether that has one op of each kind


@dataclasses.dataclass(frozen=True)
class LoadProof:
    """What came of loading a written model.

    Attributes:
      text: "loads", "loads with one op of each kind" of a large graph, or "not loaded: why".
      defect: why only the written model doesn't load; "" where it does, or nobody can tell.
    """

    text: str
    defect: str = ""


class BegunLoad(contextlib.AbstractContextManager["BegunLoad"]):
    """A written model that is being loaded; what still goes on ends with the block."""

    def __init__(
        self,
        given: SourceModel,
        directory: Path,
        tags: Sequence[str],
        memory_bytes: float | None = None,
    ) -> None:
        """Begins to load it, a large one with one op of each kind.

        Args:
          given: the model as it came; that is loaded, too, where the written one can't be.
          directory: what was written.
          memory_bytes: of the child; None for no limit.
        """
        self._memory_bytes = memory_bytes
        self._request = LoadRequest(
            str(directory.absolute()),
            tuple(tags),
            False,
            given.saved_model_dir,
            () if given.meta_graph_def is None else tuple(given.meta_graph_def.signature_def),
            b"" if given.saved_model_dir else given.graph_def.SerializeToString(),
        )
        self._child = AskedChild(_CHILD)
        self._child.ask(self._request, memory_bytes)

    def proof(self, seconds: float = SECONDS) -> LoadProof:
        """Waits until it is loaded, so many seconds at most."""
        proof, is_fewer = _proof(self._child, seconds)
        if not is_fewer:
            return proof
        if proof.text == LOADS:
            return LoadProof(LOADS_ALIKE)
        with AskedChild(_CHILD) as child:  # only the whole one tells a defect
            child.ask(dataclasses.replace(self._request, is_whole=True), self._memory_bytes)
            return _proof(child, seconds)[0]

    def __exit__(self, *error: object) -> None:
        self._child.close()


def _proof(child: AskedChild, seconds: float) -> tuple[LoadProof, bool]:
    """What came of loading that a child was asked for, which is ended; and whether it loaded one
    op of each kind."""
    try:
        with child:
            answer: LoadedModels = child.answer(seconds)
    except ChildError as error:
        before = error.last_message
        if error.gave_up:  # the whole one takes no less memory
            return LoadProof(f"not loaded: {error}"), False
        is_crash = not error.is_timeout and before is not None and before.loads_written
        defect = f"loading it: {error}" if is_crash else ""
        return LoadProof(f"not loaded: {error}", defect), before is None or before.is_fewer
    if not answer.written:
        return LoadProof(LOADS), answer.is_fewer
    why, defect = answer.written, answer.written
    if answer.given:
        why, defect = f"the model as it came doesn't load either: {answer.given}", ""
    return LoadProof(f"not loaded: {why}", defect), answer.is_fewer
