"""What a run is, and what is asked of the child process that makes it: values that are pickled."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.protos import GraphDef
from graphs.source_model import Initialization
from tfplace.measurement.device_name import device_key


@dataclasses.dataclass(frozen=True)
class TrainingRun:
    """What one run is, apart from where its ops lie.

    Attributes:
      feeds: {tensor: array} fed to each step; a feed is moved once, before the steps.
      fetches: tensors "op:i" and ops "op".
      initialization: how the variables get their values.
      source_graph: GraphDef with the ops that the initialization names, where the graph to
        run was pruned of them; None if it holds them itself.
    """

    feeds: Mapping[str, np.ndarray]
    fetches: Sequence[str]
    initialization: Initialization = dataclasses.field(default_factory=Initialization)
    source_graph: GraphDef | None = None


@dataclasses.dataclass(frozen=True)
class RuntimeConfig:
    """The TensorFlow runtime of a measuring child.

    Attributes:
      device_names: [D] of the cluster; the first is where ops without a device go.
      addresses: [D] "host:port" of each device's task; empty on this host.
      soft_placement: whether an op without a kernel on its device may run elsewhere, which
        is TensorFlow's default and hides what a placement is worth.
      gpu_memory_bytes: the memory of each logical GPU that this host's first one is split
        into; empty where it is not split.
    """

    device_names: Sequence[str]
    addresses: Sequence[str]
    soft_placement: bool = False
    gpu_memory_bytes: Sequence[int] = ()

    @property
    def num_logical_cpus(self) -> int:
        """CPU devices that this host's cores are shown as: as many as the names tell apart.

        They share one pool of threads: more than one is for correctness, not for speed.
        """
        keys = [device_key(name) for name in self.device_names]
        return 1 + max((key.index for key in keys if key.type == "CPU" and not key.job), default=0)


@dataclasses.dataclass(frozen=True)
class PrepareRequest:
    """Builds a run, initialises it and makes its first step.

    Attributes:
      slot: the number that later requests name it by; what had it is released.
      graph_def: serialized GraphDef.
      run: what to run.
      through: "tf.function", "session", or "auto": the former, and where TensorFlow can't make
        a function of the graph, the latter.
      seed: of the values of variables that nothing initialises.
    """

    slot: int
    graph_def: bytes
    run: TrainingRun
    through: str = "auto"
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class PreparedRun:
    """A run that has made its first step."""

    through: str  # "tf.function" or "session"
    outputs: Mapping[str, np.ndarray]  # fetched tensors of the first step


@dataclasses.dataclass(frozen=True)
class StepRequest:
    """Times `num_steps` steps of the run in `slot`. The answer is f8[num_steps] seconds."""

    slot: int
    num_steps: int


@dataclasses.dataclass(frozen=True)
class TraceRequest:
    """Traces `num_steps` steps of the run in `slot`. The answer is a list of StepTrace."""

    slot: int
    num_steps: int


@dataclasses.dataclass(frozen=True)
class GraphRequest:
    """Asks what a step of `slot`, a v1 Session, runs. The answer is a list of ExecutedNode."""

    slot: int


@dataclasses.dataclass(frozen=True, slots=True)
class ExecutedNode:
    """A node as TensorFlow runs it, after Grappler and the partitioning over devices.

    Attributes:
      name: in the graph that runs.
      op: its type.
      device: as TensorFlow spells it.
      inputs: as in its NodeDef.
    """

    name: str
    op: str
    device: str
    inputs: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class ReleaseRequest:
    """Gives back the variables of the run in `slot`, which is gone then."""

    slot: int


@dataclasses.dataclass(frozen=True)
class MemoryRequest:
    """Asks for the most memory that devices held; with `reset`, that begins anew.

    The answer is {device: DevicePeak}, as far as allocators of the child's own devices tell.
    """

    reset: bool


@dataclasses.dataclass(frozen=True)
class PeersRequest:
    """Asks which GPUs read each other's memory. The answer is {GPU: [GPU]}, of this host's."""


@dataclasses.dataclass(frozen=True)
class ReachRequest:
    """Asks a server for devices. The answer is a list of names, or Infeasible.

    Attributes:
      address: of the server.
      task: whose devices: "/job:…/replica:0/task:…" of the server's own cluster; "" for its own.
      seconds: the longest wait.
    """

    address: str
    task: str
    seconds: float


Request = (
    PrepareRequest
    | StepRequest
    | TraceRequest
    | GraphRequest
    | ReleaseRequest
    | MemoryRequest
    | PeersRequest
    | ReachRequest
)


# How many steps of a run are made, and how long they may take.


@dataclasses.dataclass(frozen=True)
class StepLimits:
    """How many steps to make, and how long to wait for them.

    Attributes:
      warmup_steps: steps after the first that are not counted, >= 0.
      min_steps: steps to count even if they exceed the budget, >= 1; the contract, section 5,
        wants 10 where a step time is reported.
      least_steps: with fewer a run has no time; of min_steps, where all_seconds are too short for
        these.
      max_steps: steps to count at most.
      budget_seconds: once min_steps are counted, no step starts after this time.
      timeout_seconds: the longest that one step may take.
      prepare_timeout_seconds: the longest that import, initialization and first step may take.
      all_seconds: the longest that all of it may take, from the start of the processes on.
      seed: of the values of variables that nothing initialises, and of what is drawn besides.
    """

    warmup_steps: int = 3
    min_steps: int = 10
    least_steps: int = 5
    max_steps: int = 100
    budget_seconds: float = 30.0
    timeout_seconds: float = 120.0
    prepare_timeout_seconds: float = 300.0
    all_seconds: float = math.inf
    seed: int = 0


def exactly(num_steps: int, warmup_steps: int, seed: int = 0) -> StepLimits:
    """Limits for a fixed number of steps."""
    return StepLimits(warmup_steps, min_steps=num_steps, max_steps=num_steps, seed=seed)
