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
from graphs.host.freed_memory import give_back
from graphs.loading.sniff import sniff
from graphs.source_model import SourceModel
from rewrite.clear_devices import bodies
from rewrite.split.loadable_model import is_elsewhere, loadable, with_one_of_alike, write_beside
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
        meta_graphs = sniff(directory).proto.meta_graphs
        wanted = next(each for each in meta_graphs if set(each.meta_info_def.tags) == set(tags))
        self._directory, folder = directory, Path(self._scratch.name)
        self._is_elsewhere = any(
            is_elsewhere(node.device) for _, nodes in bodies(wanted.graph_def) for node in nodes
        )
        fewer = with_one_of_alike(wanted)
        self._is_fewer = fewer is not None
        if fewer is not None:
            write_beside(directory, fewer.saved_model, folder / "one_of_alike")
            at = loadable(folder / "one_of_alike", self._is_elsewhere, folder / "fewer")
        else:
            at = self._whole()
        self._request = LoadRequest(
            at,
            tuple(tags),
            tuple(wanted.signature_def),
            given.saved_model_dir,
            () if given.meta_graph_def is None else tuple(given.meta_graph_def.signature_def),
            b"" if given.saved_model_dir else given.graph_def.SerializeToString(),
            memory_bytes,
            {} if fewer is None else fewer.not_restored,
        )
        del meta_graphs, wanted, fewer
        give_back()
        self._child.ask(self._request)

    def _whole(self) -> str:
        cleared = Path(self._scratch.name, "without_devices")
        return loadable(self._directory, self._is_elsewhere, cleared)

    def proof(self, seconds: float = SECONDS) -> LoadProof:
        """Waits until it is loaded, so many seconds at most."""
        proof = _proof(self._child, seconds)
        if not self._is_fewer:
            return proof
        if proof.text == LOADS:
            return LoadProof(LOADS_ALIKE)
        with AskedChild(_CHILD) as child:  # only the whole one tells a defect
            whole = dataclasses.replace(self._request, directory=self._whole(), not_restored={})
            child.ask(whole)
            return _proof(child, seconds)

    def __exit__(self, *error: object) -> None:
        self._child.close()
        self._scratch.cleanup()


def _proof(child: AskedChild, seconds: float) -> LoadProof:
    """What came of loading that a child was asked for; it is ended."""
    try:
        with child:
            answer: LoadedModels = child.answer(seconds)
    except ChildError as error:
        before = error.last_message
        is_crash = not error.is_timeout and before is not None and before.loads_written
        return LoadProof(f"not loaded: {error}", f"loading it: {error}" if is_crash else "")
    if answer.ended:
        return LoadProof(f"not loaded: {answer.ended}")
    if not answer.written:
        return LoadProof(LOADS)
    if answer.given:
        return LoadProof(f"not loaded: the model as it came doesn't load either: {answer.given}")
    return LoadProof(f"not loaded: {answer.written}", answer.written)
