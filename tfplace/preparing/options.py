"""What a user can ask of `optimize`: its flags as one value.

The contract (`tfplace/docs/contract.md`), section 2, lists them.
"""

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence

from graphs.errors import UsageError
from graphs.loading.feeds import FeedsGiven
from graphs.loading.load_options import LoadOptions
from rewrite.memory.recompute import MemoryPlan
from tfplace.output_paths import (
    default_output_dir,
    require_apart,
    require_file,
    require_outside,
    require_replaceable,
    require_unread,
)

AUTO = 0
"""As a number of shards: a search tries several; what reads a model leaves its step whole."""


@dataclasses.dataclass(frozen=True)
class ProblemOptions:
    """Which model, on which devices, under which constraints.

    Attributes:
      model: path.
      load: how to find the run in it.
      cluster: as for --cluster.
      precision: as for --precision; empty for what the cluster says.
      pins: "REGEX=DEVICE".
      no_split: regular expressions.
      keep_devices: whether device strings in the model are pins, where the cluster has them.
      free_gradients: whether gradient ops may lie elsewhere than their forward ops.
      memory_reserve: fraction [0, 1) of each device's memory that is kept free.
      device_memory: "4GiB" for the most memory of each device, "NAME=4GiB" for that of one.
      fed: an .npz of inputs, or {input: array}; generated ones where None.
      seed: of generated inputs.
      cost_cache: the folder where costs are kept between runs; None keeps nothing.
      num_shards: into how many parts the step's batch is split; 1 leaves the step whole; AUTO.
      cuts_weights: whether weights are cut into num_shards pieces, instead of the batch.
      order: "edges" for control edges that say what starts first, "none", or "auto": where
        num_shards is not 1 and the devices are not here.
      batch_axes: {input: which axis is its batch; -1 for an input that is not split}.
      left_whole: ops that stay one op in a split step, though they could be split.
      sums_in_turn: whether a split step's large sums are added term after term, as they are where
        there is an order; None for as `order` says.
      memory_plan: "auto" to let ops run again where a step doesn't fit the devices' memory
        otherwise, or would be slower; or "none".
      planned: what runs again; None for nothing, which is what a model is read with.
      as_written: whether a model that tfplace wrote is read with its order and memory plan, not
        without, as who looks for new ones needs it.
    """

    model: str
    load: LoadOptions = dataclasses.field(default_factory=LoadOptions)
    cluster: str = "local"
    precision: str = ""
    pins: Sequence[str] = ()
    no_split: Sequence[str] = ()
    keep_devices: bool = False
    free_gradients: bool = True
    memory_reserve: float = 0.1
    device_memory: Sequence[str] = ()
    fed: FeedsGiven | None = None
    seed: int = 0
    cost_cache: str | None = None
    num_shards: int = 1
    cuts_weights: bool = False
    batch_axes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    order: str = "none"
    left_whole: Collection[str] = frozenset()
    sums_in_turn: bool | None = None
    memory_plan: str = "auto"
    planned: MemoryPlan | None = None
    as_written: bool = False

    @property
    def files_read(self) -> tuple[str, ...]:
        """Paths that a user gave."""
        cluster = [self.cluster] if self.cluster.endswith(".json") else []
        return (self.model, *cluster, *([self.fed] if isinstance(self.fed, str) else []))


LEAST_SECONDS_TO_CALIBRATE = 30.0
"""A budget below which the machine is taken as assumed, or as real runs correct it."""


@dataclasses.dataclass(frozen=True)
class OptimizeOptions:
    """A whole optimisation.

    Attributes:
      problem: model, cluster, constraints.
      output_dir: where the SavedModel goes; None for MODEL's stem + "_placed".
      overwrite: replace an output that exists.
      algorithm: a name of tfplace.algorithms.table.
      evaluator: "auto", "simulate" or "measure".
      budget_seconds, max_trials: limits of the search.
      max_devices: how many devices may be used; None for all.
      seed: of every random choice.
      policy: a checkpoint of `tfplace train`, or None.
      checkpoint_dir: where the search is kept and goes on from, or None.
      dump_problem: an .npz to write, or None.
      logdir: where TensorBoard's event files go, or None.
      emit: what is left in output_dir: of rewrite.emit_forms.FORMS.
      verify: "structure", "run" or "auto": whether both models are run, too.
      command: the command line, for the report.
    """

    problem: ProblemOptions
    output_dir: str | None = None
    overwrite: bool = False
    algorithm: str = "auto"
    evaluator: str = "auto"
    budget_seconds: float = 60.0
    max_trials: int | None = None
    max_devices: int | None = None
    seed: int = 0
    policy: str | None = None
    checkpoint_dir: str | None = None
    dump_problem: str | None = None
    logdir: str | None = None
    emit: frozenset[str] = frozenset({"saved_model"})
    verify: str = "auto"
    command: str = ""

    @property
    def measures_machine(self) -> bool:
        """Whether devices that are here are measured first: real runs decide, and there is time."""
        return self.evaluator == "auto" and self.budget_seconds >= LEAST_SECONDS_TO_CALIBRATE


def require_outputs(options: OptimizeOptions) -> str:
    """Checks where an optimisation's results would go; returns the folder of its SavedModel.

    Raises:
      UsageError: what is asked for doesn't go together.
      OutputError: one of them can't be where it should.
    """
    if options.problem.num_shards == AUTO:
        _require_possible_with_auto(options)
    output_dir = options.output_dir or default_output_dir(options.problem.model)
    require_apart(output_dir, options.problem.model)
    read = [*options.problem.files_read, *filter(os.path.isfile, [options.policy or ""])]
    require_unread(output_dir, "--output_dir", read)
    require_replaceable(output_dir, options.overwrite)
    require_file(options.dump_problem, "--dump_problem", output_dir)
    require_unread(options.dump_problem, "--dump_problem", read)
    require_outside(options.checkpoint_dir, "--checkpoint_dir", output_dir)
    require_outside(options.logdir, "--logdir", output_dir)
    return output_dir


def _require_possible_with_auto(options: OptimizeOptions) -> None:
    """Raises UsageError for what can't be had while the number of shards is searched for."""
    if options.checkpoint_dir is not None:
        raise UsageError(
            f"keeping the search in {options.checkpoint_dir}: --shards=auto searches several "
            "problems, and a kept search has one; give --shards a number or no --checkpoint_dir"
        )
    if options.evaluator == "measure":
        raise UsageError(
            "searching with --evaluator=measure: --shards=auto compares many placements of several "
            "problems, for which real runs are too slow; give --shards a number or "
            "--evaluator=auto, whose real runs come at the end"
        )
