"""What `prove_loads` asks of its child process and what that answers: values that are pickled."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence


@dataclasses.dataclass(frozen=True)
class LoadRequest:
    """What the child is to do.

    Attributes:
      directory: the written SavedModel.
      tags: of the MetaGraphDef to load.
      signatures: what it has to have.
      given_directory: the SavedModel as it came; "" for a graph.
      given_signatures: what that one has.
      given_graph: serialized, where the model came as a graph.
      memory_bytes: the child ends itself when it holds more; None for no limit.
      not_restored: {key: type and shape} of variables that loading leaves out; they are read from
        the files one by one instead, since all together take the more memory.
    """

    directory: str
    tags: Sequence[str]
    signatures: Sequence[str]
    given_directory: str
    given_signatures: Sequence[str]
    given_graph: bytes
    memory_bytes: float | None
    not_restored: Mapping[str, tuple[int, tuple[int, ...]]] = dataclasses.field(
        default_factory=dict
    )


@dataclasses.dataclass(frozen=True)
class LoadedModels:
    """What came of it.

    Attributes:
      written: why the written model doesn't load; "" where it does.
      given: why the model as it came doesn't load either; "" where it does.
      loads_written: whether the written model is loaded at present.
      ended: why the child gave up; "" where it didn't.
    """

    written: str = ""
    given: str = ""
    loads_written: bool = False
    ended: str = ""
