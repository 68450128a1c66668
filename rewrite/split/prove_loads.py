"""Proves that a written model loads in TensorFlow 2, with the signatures that it should have.

Its files are what they should be, op by op, and a session runs them: still `tf.saved_model.load`
may refuse a function that has lost an attribute, or an object whose function is gone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

from graphs.host.asked_child import AskedChild, ChildError
from graphs.source_model import SourceModel
from rewrite.split.prove_loads_messages import LoadedModels, LoadRequest

SECONDS = 300.0
"""After which it counts as not loaded."""
LOADS = "loads"
LOADS_ALIKE = "loads with one op of each kind"
_CHILD = "rewrite.split.prove_loads_child"


@dataclasses.dataclass(frozen=True)
class LoadProof:
    """What came of loading a written model.

    Attributes:
      text: "loads", "loads with one op of each kind" of a large graph, or "not loaded: why".
      defect: why only the written model doesn't load; "" where it does, or nobody can tell.
    """

    text: str
    defect: str = ""


def prove_loads(
    given: SourceModel,
    directory: Path,
    tags: Sequence[str],
    memory_bytes: float | None = None,
    seconds: float = SECONDS,
) -> LoadProof:
    """Loads a written model in a child process; where that fails, the model as it came, too.

    Args:
      given: the model as it came.
      directory: what was written.
      tags: of its MetaGraphDef.
      memory_bytes: of the child; None for no limit.
      seconds: what it may take.
    """
    with BegunLoad(given, directory, tags, memory_bytes) as begun:
        return begun.proof(seconds)


class BegunLoad(contextlib.AbstractContextManager["BegunLoad"]):
    """A written model that is being loaded; what still goes on ends with the block."""

    def __init__(
        self,
        given: SourceModel,
        directory: Path,
        tags: Sequence[str],
        memory_bytes: float | None = None,
    ) -> None:
        """Begins to load it, a large one with one op of each kind; arguments of `prove_loads`."""
        self._scratch = tempfile.TemporaryDirectory(prefix="tfplace_")
        self._child = AskedChild(_CHILD)
        try:
            self._begin(given, directory, tags, memory_bytes)
        except BaseException:
            self.__exit__()
            raise

    def _begin(
        self,
        given: SourceModel,
        directory: Path,
        tags: Sequence[str],
        memory_bytes: float | None,
    ) -> None:
        self._request = LoadRequest(
            str(directory.absolute()),
            tuple(tags),
            self._folder("first"),
            False,
            given.saved_model_dir,
            () if given.meta_graph_def is None else tuple(given.meta_graph_def.signature_def),
            b"" if given.saved_model_dir else given.graph_def.SerializeToString(),
            memory_bytes,
        )
        self._child.ask(self._request)

    def _folder(self, name: str) -> str:
        folder = Path(self._scratch.name, name)
        folder.mkdir()
        return str(folder)

    def proof(self, seconds: float = SECONDS) -> LoadProof:
        """Waits until it is loaded, so many seconds at most."""
        proof, is_fewer = _proof(self._child, seconds)
        if not is_fewer:
            return proof
        if proof.text == LOADS:
            return LoadProof(LOADS_ALIKE)
        with AskedChild(_CHILD) as child:  # only the whole one tells a defect
            scratch = self._folder("whole")
            child.ask(dataclasses.replace(self._request, is_whole=True, scratch=scratch))
            return _proof(child, seconds)[0]

    def __exit__(self, *error: object) -> None:
        self._child.close()
        self._scratch.cleanup()


def _proof(child: AskedChild, seconds: float) -> tuple[LoadProof, bool]:
    """What came of loading that a child was asked for, which is ended; and whether it loaded one
    op of each kind."""
    try:
        with child:
            answer: LoadedModels = child.answer(seconds)
    except ChildError as error:
        before = error.last_message
        is_crash = not error.is_timeout and before is not None and before.loads_written
        defect = f"loading it: {error}" if is_crash else ""
        return LoadProof(f"not loaded: {error}", defect), before is None or before.is_fewer
    return _of_answer(answer), answer.is_fewer


def _of_answer(answer: LoadedModels) -> LoadProof:
    if answer.ended:
        return LoadProof(f"not loaded: {answer.ended}")
    if not answer.written:
        return LoadProof(LOADS)
    if answer.given:
        return LoadProof(f"not loaded: the model as it came doesn't load either: {answer.given}")
    return LoadProof(f"not loaded: {answer.written}", answer.written)
