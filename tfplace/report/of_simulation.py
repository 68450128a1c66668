"""What `tfplace simulate` says beside the prediction: the split, the kind of parallelism."""

from collections.abc import Iterator

from graphs.counted import counted
from graphs.op_graph import IntArray
from graphs.protos import JsonObject
from tfplace.algorithms.placers.legal import working_devices
from tfplace.choosing.data_parallel import DataParallel, data_parallel_baseline
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import PreparedModel
from tfplace.report.explaining.parallelism import parallelism_of
from tfplace.report.explaining.parallelism_text import parallelism_facts
from tfplace.report.split_facts import split_facts, split_sentences
from tfplace.units_text import bytes_text, seconds_text


def simulation_facts(
    prepared: PreparedModel, options: ProblemOptions, device_of_op: IntArray, can_run: bool
) -> JsonObject:
    """`split`, `parallelism` and `data_parallel`, as report.json has them.

    Args:
      prepared: what was simulated.
      options: what it was prepared from.
      device_of_op: i4[N].
      can_run: whether every op lies where it has a kernel; nothing is told of a step that can't.
    """
    problem, baseline = prepared.problem, None
    is_even = prepared.split is not None and prepared.split.num_shards == len(
        working_devices(problem)
    )
    if is_even:
        baseline = data_parallel_baseline(prepared, options)
    kind = parallelism_facts(parallelism_of(problem, device_of_op), problem) if can_run else None
    return {"split": split_facts(prepared.split), "parallelism": kind, "data_parallel": baseline}


def simulation_sentences(facts: JsonObject) -> Iterator[tuple[str, str]]:
    """The same for a person."""
    if facts["split"] is not None:
        yield from split_sentences(facts["split"])
    if facts["parallelism"] and facts["parallelism"]["sentence"]:
        yield "kind", facts["parallelism"]["sentence"]
    if facts["data_parallel"] is not None:
        yield "compare", _baseline(facts["data_parallel"])


def _baseline(baseline: DataParallel) -> str:
    if baseline.step_seconds is None:
        return f"shard i on device i can't run: {baseline.reason}"
    return (
        f"shard i on device i: {seconds_text(baseline.step_seconds)} a step, "
        f"{counted(baseline.num_transfers, 'transfer')}, {bytes_text(baseline.transfer_bytes)}"
    )
