"""A graph becomes a SavedModel in a child process, beside whatever else goes on.

TensorFlow's start, the graph's import and the values of its variables take seconds, and all of it
is known before a placement is: so it is begun early, and `emit` only waits for what is left.
"""

import contextlib
import copy
import dataclasses
import os
import pickle
import tempfile
from pathlib import Path

from graphs.errors import ModelError
from graphs.host.asked_child import AskedChild, ChildError
from graphs.loading.sniff import SAVED_MODEL_FILES, sniff
from graphs.protos import GraphDef
from graphs.source_model import SourceModel
from rewrite.call_graph import without_devices
from rewrite.written_signature import written_name

_CHILD = "rewrite.build_saved_model"
_ENVIRONMENT = {"TF_ENABLE_ONEDNN_OPTS": "0"}
"""With oneDNN TensorFlow keeps all memory that its tensors ever took, and nothing here needs it."""
_TIMEOUT_SECONDS = 600.0
TAGS = ("serve",)
"""Of the one MetaGraphDef that is made."""
_REQUEST = "request"
_MADE = "made"


@dataclasses.dataclass(frozen=True)
class BuiltModel:
    """A SavedModel that was made of a graph, without any device in it.

    Attributes:
      directory: where it lies.
      saved_model: its saved_model.pb.
    """

    directory: Path
    saved_model: bytes


class ModelBuilder(contextlib.AbstractContextManager["ModelBuilder"]):
    """Makes a SavedModel of one graph; a model that is one already needs nothing of it."""

    def __init__(self, model: str = "") -> None:
        """Starts TensorFlow in the child where the path looks as if it will be needed."""
        self._child = AskedChild(_CHILD, _ENVIRONMENT) if os.path.isfile(model) else None
        self._source: SourceModel | None = None
        self._folder = Path()

    def begin(self, source: SourceModel, folder: Path, without_values: bool = False) -> None:
        """Begins to build; a second call for the same model does nothing, one for another anew.

        Args:
          folder: an empty directory for all that is made.
          without_values: whether to leave the variables' files out, so that nothing has to run.
        """
        if self._source is source:
            return
        if self._source is not None:
            self.close()
            folder = Path(tempfile.mkdtemp(dir=folder))
        self._source, self._folder = source, folder
        if source.saved_model_dir:
            self.close()
            return
        # In a file: a long message would have to wait until the child has started TensorFlow.
        request = pickle.dumps(_request(source, folder / _MADE, without_values))
        (folder / _REQUEST).write_bytes(request)
        self._child = self._child or AskedChild(_CHILD, _ENVIRONMENT)
        self._child.ask(str(folder / _REQUEST))

    @property
    def is_building(self) -> bool:
        """Whether `built` would have to wait."""
        return self._child is not None and self._child.is_running

    def built(self) -> BuiltModel | None:
        """Waits for the end of what was begun; None for a SavedModel.

        Raises:
          ModelError: TensorFlow can't import the graph, or its variables can't be initialised.
        """
        if self._source is None:
            raise ValueError("waiting for a SavedModel: none was begun; call begin before")
        if self._source.saved_model_dir or self._child is None:
            return None
        try:
            self._child.answer(_TIMEOUT_SECONDS)
        except ChildError as error:
            raise ModelError(
                f"making a SavedModel of {self._source.path!r}: {error}; check that the graph's "
                "own init ops run, or hand in a SavedModel"
            ) from error
        made = self._folder / _MADE
        return BuiltModel(made, (made / SAVED_MODEL_FILES[0]).read_bytes())

    def close(self) -> None:
        """Ends the child; may be called twice."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def __exit__(self, *error: object) -> None:
        self.close()


def build_saved_model(
    source: SourceModel, folder: Path, without_values: bool = False
) -> BuiltModel:
    """Makes a SavedModel of a graph, and waits for it.

    Args:
      source: a model that is no SavedModel.
      folder: an empty directory, for it and all that is made besides.
      without_values: whether to leave the variables' files out, so that nothing has to run.

    Raises:
      ModelError: TensorFlow can't import it, or its variables can't be initialised.
    """
    with ModelBuilder() as builder:
        builder.begin(source, folder, without_values)
        built = builder.built()
        assert built is not None
        return built


def own_graph(source: SourceModel) -> GraphDef:
    """The model's main graph as it came, without shapes that were filled in."""
    return source.meta_graph_def.graph_def if source.saved_model_dir else given_graph(source)


def given_graph(source: SourceModel) -> GraphDef:
    """Finds the GraphDef to emit for a model that is no SavedModel.

    As it came, without the shapes that were filled in for the search; with the training step,
    where one had to be made.
    """
    if source.origins is not None:
        return source.graph_def
    if source.split_graph is not None:
        return source.split_graph
    if source.meta_graph_def is not None:
        return source.meta_graph_def.graph_def
    return sniff(source.path).proto if os.path.isfile(source.path) else source.graph_def


def _request(source: SourceModel, made: Path, without_values: bool) -> dict[str, object]:
    meta_graph = b""
    if source.meta_graph_def is not None:
        bare = copy.deepcopy(source.meta_graph_def)
        bare.ClearField("graph_def")
        meta_graph = bare.SerializeToString()
    return {
        "graph_def": without_devices(given_graph(source)).SerializeToString(),
        "meta_graph_def": meta_graph,
        "output_dir": os.path.abspath(made),
        "signature": written_name(source),
        "feeds": [spec.tensor for spec in source.feeds],
        "fetches": source.fetches,
        "whole_fetches": source.whole_fetches,
        "variables": source.variables,
        "initialization": source.initialization,
        "without_values": without_values,
    }
