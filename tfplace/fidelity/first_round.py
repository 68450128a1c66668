"""What `optimize` learns of a machine in its first round, before predictions are judged."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from graphs.clusters.discovery import find_cluster
from graphs.op_graph import IntArray
from graphs.problem import Infeasible
from tfplace.choosing.baselines import Plan
from tfplace.choosing.real_runs.contest import forward_model
from tfplace.choosing.real_runs.loop import measured_loop
from tfplace.choosing.real_runs.plan import LoopConfig, Runs
from tfplace.choosing.scheduling.model_order import with_order
from tfplace.fidelity.placements import placements_to_learn_from
from tfplace.fidelity.study import measured_steps, rounds
from tfplace.measurement.presence import require_present
from tfplace.measurement.run_measurement import Timings
from tfplace.preparing.on_known_machine import keep_what_was_taught, on_known_machine
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import PreparedModel, prepare

NUM_ROUNDS = 5
"""Timed steps of each placement."""

Timed = Sequence[Timings | Infeasible]


@dataclasses.dataclass(frozen=True)
class KnownMachine:
    """Attributes: prepared: with the simulator corrected; corrected: {number: value, low, high}."""

    prepared: PreparedModel
    corrected: Mapping[str, tuple[float, float, float]] = dataclasses.field(default_factory=dict)


def prepared_as_known(
    options: ProblemOptions, scratch: Path, seed: int, tell: Callable[[str], None]
) -> KnownMachine:
    """A model's problem on this machine as `optimize` knows it: measured, taught, or both.

    What is found out is kept for later runs; a cluster file is taken as it is.

    Args:
      scratch: where figures lie for this run, if nothing is kept between runs.
      seed: of placements and values.

    Raises:
      ClusterError: the devices are not here.
    """
    require_present(
        find_cluster(options.cluster),
        "comparing predictions with real runs on",
        "name a --cluster that is here, such as workers:2",
    )
    used = on_known_machine(options, scratch, tell)
    tell(f"reading {options.model} and pricing its ops")
    prepared = with_order(prepare(used), options.order)
    known = known_machine(prepared, seed, tell, is_calibrated=options.cluster.endswith(".json"))
    if known.corrected:
        keep_what_was_taught(options, used, scratch, known.corrected)
    return known


def known_machine(
    prepared: PreparedModel,
    seed: int,
    tell: Callable[[str], None],
    measure: Callable[[Sequence[IntArray]], Timed] | None = None,
    is_calibrated: bool = True,
) -> KnownMachine:
    """The problem as a short round of real runs corrects it.

    It is as it is where a calibrated cluster file was asked for.

    The placements are others than those that are judged afterwards, but for the single device.

    Args:
      prepared: the problem on a cluster that is present.
      seed: of placements and values.
      measure: times placements; by default real runs, side by side.
      is_calibrated: whether measured figures of the cluster are to be taken as they are.
    """
    is_known = is_calibrated and prepared.cluster.transfer_work is not None
    if is_known or prepared.problem.num_devices < 2:
        return KnownMachine(prepared)
    tell("getting to know the machine: a first round of real runs, of other placements")
    limits = rounds(NUM_ROUNDS, seed)
    timed = measure or (lambda chosen: measured_steps(prepared, chosen, limits, tell))

    def runs(plans: Sequence[Plan]) -> Runs:
        results = timed([plan.device_of_op for plan in plans])
        return [each if isinstance(each, Infeasible) else each.step_seconds for each in results]

    chosen = placements_to_learn_from(prepared.instance, seed)
    plans = [Plan(each.name, each.device_of_op) for each in chosen]
    learned = measured_loop(
        forward_model(prepared), plans, [], runs, lambda *nothing: None, LoopConfig(max_rounds=1)
    )
    if not learned.seconds:
        return KnownMachine(prepared)
    corrections = learned.corrections
    corrected = corrections.values()
    cluster = dataclasses.replace(prepared.cluster, taught=corrected)  # its dispatch has a start
    prepared = dataclasses.replace(prepared, cluster=cluster, problem=corrections.problem)
    return KnownMachine(prepared, corrected)
