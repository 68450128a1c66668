"""What `verify` asks of its child process and what that answers: values that are pickled."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from graphs.source_model import Initialization, Variable

SESSION = "v1 Session"
LOAD = "tf.saved_model.load"
LOAD_ON_DEVICES = "tf.saved_model.load, variables on their devices"
OutcomeKind = Literal[
    "compared", "placed_failed", "given_failed", "split_failed", "damaged", "left_out", "ended"
]


@dataclasses.dataclass(frozen=True)
class SavedModel:
    """A SavedModel, and the way to run it.

    Attributes:
      directory: where it is.
      tags: of the MetaGraphDef to load.
      signature: one that has to be there, which is called unless it runs in a session; or "".
      way: SESSION, LOAD or LOAD_ON_DEVICES. What TensorFlow 2 saved is loaded.
      has_only_variables: whether a run leaves nothing behind but its variables' values.
    """

    directory: str
    tags: Sequence[str]
    signature: str = ""
    way: str = SESSION
    has_only_variables: bool = False


@dataclasses.dataclass(frozen=True)
class BareGraph:
    """A GraphDef that runs in a v1 Session.

    Attributes:
      graph_def: serialized.
      initialization: how its variables get their values.
      variables: all of them.
      checkpoint: prefix of the files with the values that they get after that, or "".
    """

    graph_def: bytes
    initialization: Initialization
    variables: Sequence[Variable]
    checkpoint: str


@dataclasses.dataclass(frozen=True, eq=False)
class ModelRun:
    """A model, with what is fed and what is read.

    Attributes:
      model: what runs.
      feeds: {tensor, or input of the signature that is called: array} of every step.
      fetches: {name of the value: tensor, or output of the signature that is called}.
      ops: ops that are run besides.
      num_steps: how often it is run; the values of each step count, and those of a signature's
        variables after several.
      variables: in a session those whose values after the last step count, too.
    """

    model: SavedModel | BareGraph
    feeds: Mapping[str, np.ndarray]
    fetches: Mapping[str, str]
    ops: Sequence[str] = ()
    num_steps: int = 1
    variables: Sequence[Variable] = ()


@dataclasses.dataclass(frozen=True)
class Check:
    """A run of the model as it came, and the run of the emitted model that must give the same.

    Attributes:
      label: how it is called.
      given, placed: the two runs.
      is_run: whether this is the run that was placed, however it is called.
      unsplit: the unsplit step's run, where `given` is the run of a split one.
    """

    label: str
    given: ModelRun
    placed: ModelRun
    is_run: bool = False
    unsplit: ModelRun | None = None


@dataclasses.dataclass(frozen=True)
class RemoteTasks:
    """The tasks of a cluster that models are run on.

    Attributes:
      first_device: of it.
      addresses: {job: {task: "host:port"}}; empty for the process itself.
      environment: variables of a child that connects to them.
    """

    first_device: str = ""
    addresses: Mapping[str, Mapping[int, str]] = dataclasses.field(default_factory=dict)
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def target(self) -> str:
        """What a session connects to: the first task; "" for the process itself."""
        tasks = next(iter(self.addresses.values()), {})
        return f"grpc://{next(iter(tasks.values()))}" if tasks else ""


@dataclasses.dataclass(frozen=True)
class VerifyRequest:
    """What the child is to do.

    Attributes:
      checks: made in this order.
      tasks: where models are run.
      num_cpus: CPU devices that the child needs where it has no other tasks.
      narrowest: the least precise float type that the model computes with; "" for float32.
      budget_seconds: no further check is begun that would likely end after it.
    """

    checks: Sequence[Check]
    tasks: RemoteTasks
    num_cpus: int
    narrowest: str
    budget_seconds: float


@dataclasses.dataclass(frozen=True)
class ComparedValue:
    """One value of a check.

    Attributes:
      name: how it is called.
      max_abs_diff: largest absolute difference.
      is_equal: whether both models agree within the tolerance.
      is_random: whether two runs of the model as it came differ, so that nothing can be compared.
      is_grown: whether rounding errors alone take the model as it came about as far.
    """

    name: str
    max_abs_diff: float
    is_equal: bool
    is_random: bool
    is_grown: bool = False


@dataclasses.dataclass(frozen=True)
class CheckOutcome:
    """What came of a check.

    Attributes:
      label: of the check.
      kind: "compared"; or what happened instead: one of the models failed, a split step failed
        where the unsplit one runs, the variables of the model as it came are damaged, there was
        no time left, or a limit ended it.
      why: what is behind that; "" where values were compared.
      values: what was compared.
    """

    label: str
    kind: OutcomeKind
    why: str = ""
    values: Sequence[ComparedValue] = ()


@dataclasses.dataclass(frozen=True)
class ChecksSoFar:
    """How far the child is.

    Attributes:
      outcomes: of the checks that are done.
      runs_placed: whether the emitted model runs at present.
    """

    outcomes: Sequence[CheckOutcome] = ()
    runs_placed: bool = False
