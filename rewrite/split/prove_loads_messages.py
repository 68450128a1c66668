"""What `prove_loads` asks of its child process and what that answers: values that are pickled."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class LoadRequest:
    """What the child is to do.

    Attributes:
      directory: the written SavedModel.
      tags: of the MetaGraphDef to load.
      scratch: an empty folder for what has to be written of it to load it.
      is_whole: whether to load all of it, however large it is.
      given_directory: the SavedModel as it came; "" for a graph.
      given_signatures: what that one has.
      given_graph: serialized, where the model came as a graph.
      memory_bytes: the child ends itself when it holds more; None for no limit.
    """

    directory: str
    tags: Sequence[str]
    scratch: str
    is_whole: bool
    given_directory: str
    given_signatures: Sequence[str]
    given_graph: bytes
    memory_bytes: float | None


@dataclasses.dataclass(frozen=True)
class LoadedModels:
    """What came of it.

    Attributes:
      written: why the written model doesn't load; "" where it does.
      given: why the model as it came doesn't load either; "" where it does.
      loads_written: whether the written model is loaded at present.
      is_fewer: whether that has one op of each kind.
      ended: why the child gave up; "" where it didn't.
    """

    written: str = ""
    given: str = ""
    loads_written: bool = False
    is_fewer: bool = False
    ended: str = ""
