"""What is in a model, in numbers: the answer of `tfplace inspect`."""

import collections
import dataclasses
import functools
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from rich.console import Console

from graphs.counted import counted
from graphs.errors import FeedError, NothingToSplitError
from graphs.op_graph import IntArray
from graphs.problem import Measurement, Problem
from graphs.protos import JsonObject
from rewrite.memory.sums_in_turn import added_in_turn
from tfplace.algorithms.placers.legal import working_devices
from tfplace.algorithms.placers.one_shot import single_devices
from tfplace.choosing.baselines import Candidate
from tfplace.choosing.memory.fit import fitted
from tfplace.choosing.memory.rematerialize import CopyPlan
from tfplace.choosing.memory.within_memory import (
    may_change,
    source_ops,
    unlimited_seconds,
    with_sums_in_turn,
    with_variables_on_host,
)
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import PreparedModel, prepare
from tfplace.report.report import plan_words
from tfplace.report.split_facts import split_facts_with_work, split_sentences
from tfplace.report.text import print_facts, table
from tfplace.simulation.simulated import simulated
from tfplace.units_text import bytes_text, count_text, seconds_text, share_text

MAX_ROWS = 20
FIRST_BATCH, MOST_EXAMPLES = 8, 1 << 20
MAX_COUNTS = 10
PLAN_SECONDS = 20.0
"""What looking for ops to run again may take, for one batch."""


@dataclasses.dataclass(frozen=True)
class OpTypeRow:
    """All ops of one type together."""

    op_type: str  # as TensorFlow calls it
    num_ops: int  # how many there are
    seconds: float  # what they take, each on the device that is fastest for it
    output_bytes: int  # what they make


@dataclasses.dataclass(frozen=True)
class Fit:
    """Whether the device that a step suits best can hold it."""

    fits: bool  # whether it can
    device: str  # the fastest of those that can; of none, the one that lacks least
    peak_bytes: int  # the most that it would hold at a time
    usable_bytes: int  # its memory without the reserve
    variables_on_host: bool = False  # whether they, and what updates them, would, so that it can
    runs_again: int = 0  # how many ops would run again for that (docs/memory.md)
    on_host: int = 0  # how many tensors would wait on the host for that
    sums_in_turn: int = 0  # of how many sums the terms would be added one by one
    lists_in_turn: int = 0  # of how many lists the gradients would be used as they come
    more_time: float = 0.0  # the share by which a step takes longer for that


@dataclasses.dataclass(frozen=True)
class Inspection:
    """Everything that `inspect` prints.

    Attributes:
      path: of the model.
      kind: of its file, see graphs.source_model.SourceModel.
      mode: "train" or "inference".
      step_origin: how the run was found.
      guessed: sentences about what was filled in without being told.
      signatures: their names.
      num_ops: ops of the run, its functions opened.
      num_tensors: tensors that these ops make.
      num_edges: pairs of a tensor and an op that uses it.
      num_functions: functions that were opened.
      num_colocation_groups: groups of ops that must lie together.
      largest_colocation_group: how many ops the largest of them has; 0 without any.
      devices_asked: {device string: ops}; "" for ops that ask for none.
      trainable_bytes: variables that training changes.
      variable_bytes: all variables.
      constant_bytes: all constants.
      flops: floating point operations of a step, as far as Grappler priced it.
      op_types: the type that takes most seconds first.
      units: {op: why it can't be split}.
      opened: {conditional: what was done to place its branches op by op}.
      unknown_shapes: how many tensors have a size that is not known.
      unpriced_ops: {op type: ops that Grappler could not price}.
      without_gpu_kernel: {op type: ops that must stay on a CPU}; empty without GPUs.
      cluster: the name of the one that the costs are for.
      split: how --shards splits the step, with the share of its floating-point work that is
        split; None where it is whole.
      not_split: why --shards can split nothing of the step.
      fits: whether one device can hold it as it came.
      planned: the same with ops that run again; None where it fits without, or not even so.
      largest_batch: the most examples of which one device can hold a step; None where nobody asked,
        0 where not even one fits, or where the model says how many there are.
      largest_planned: the same with ops that run again: the batch, and how it fits.
    """

    path: str
    kind: str
    mode: str
    step_origin: str
    guessed: Sequence[str]
    signatures: Sequence[str]
    num_ops: int
    num_tensors: int
    num_edges: int
    num_functions: int
    num_colocation_groups: int
    largest_colocation_group: int
    devices_asked: Mapping[str, int]
    trainable_bytes: int
    variable_bytes: int
    constant_bytes: int
    flops: float
    op_types: Sequence[OpTypeRow]
    units: Mapping[str, str]
    opened: Mapping[str, str]
    unknown_shapes: int
    unpriced_ops: Mapping[str, int]
    without_gpu_kernel: Mapping[str, int]
    cluster: str
    split: JsonObject | None
    not_split: str = ""
    fits: Fit | None = None
    planned: Fit | None = None
    largest_batch: int | None = None
    largest_planned: tuple[int, Fit] | None = None


def inspect_model(options: ProblemOptions, with_largest_batch: bool = False) -> Inspection:
    """What is in a model; in the whole step, and why, where nothing of it can be split.

    Looking for the largest batch, too, reads the model some ten times more.
    """
    why_not = ""
    try:
        prepared = prepare(options, trace=False)
    except NothingToSplitError as error:
        why_not = str(error)
        prepared = prepare(dataclasses.replace(options, num_shards=1), trace=False)
    found = dataclasses.replace(inspect(prepared), not_split=why_not)
    is_planned = options.memory_plan != "none"
    if is_planned and found.fits is not None and not found.fits.fits:
        found = dataclasses.replace(found, planned=planned_fit(prepared, options))
    if with_largest_batch:
        # Of a Keras file, what was exported is read for each size, not the file itself again.
        model = prepared.source.saved_model_dir or options.model
        options = dataclasses.replace(options, model=model)
        batch = largest_batch(options)
        planned = largest_planned(options, batch) if is_planned else None
        found = dataclasses.replace(found, largest_batch=batch, largest_planned=planned)
    return found


def fit_of(prepared: PreparedModel) -> Fit:
    """Whether one device holds a step, by simulation."""
    return _on_one_device(prepared)[0]


def planned_fit(prepared: PreparedModel, options: ProblemOptions) -> Fit | None:
    """How one device holds a step that doesn't fit as it came; None where no plan was found."""
    until = time.monotonic() + PLAN_SECONDS
    base = with_sums_in_turn(prepared, options, lists=False) or prepared
    found = _planned_fit(prepared, base, until)
    if found is not None or (past := with_sums_in_turn(prepared, options, lists=True)) is None:
        return found
    return _planned_fit(prepared, past, max(until, time.monotonic() + PLAN_SECONDS / 2.0))


def _planned_fit(prepared: PreparedModel, base: PreparedModel, until: float) -> Fit | None:
    """The same of a model whose sums, or lists, are used in turn perhaps."""
    fit, placement = _on_one_device(prepared)
    problem = prepared.problem
    without, device = unlimited_seconds(problem, placement), problem.device_names.index(fit.device)
    source, may = source_ops(base, prepared).op, may_change(base)
    known = Candidate("on one device", placement, simulated(problem, placement).outcome)
    placements = {each.key: each for each in (known, with_variables_on_host(problem, known))}
    found: list[tuple[float, int, Fit]] = []
    for each in placements.values():
        step, plan = simulated(base.problem, each.device_of_op[source]), CopyPlan()
        if not step.is_feasible:
            until_next = (time.monotonic() + until) / 2.0
            planned = fitted(base.problem, step.device_of_op, may, until_next)
            if planned is None:
                continue
            step, plan = planned.simulated, planned.plan
        peak = int(step.outcome.peak_bytes[device])
        how = dataclasses.replace(
            fit,
            fits=True,
            peak_bytes=peak,
            variables_on_host=each.key != known.key,  # without GPUs both are one
            runs_again=sum(copy.tensor < 0 for copy in plan.copies),
            on_host=len({copy.tensor for copy in plan.copies} - {-1}),
            sums_in_turn=len(added_in_turn(base.source.graph_def, lists=False)),
            lists_in_turn=len(added_in_turn(base.source.graph_def, lists=True)),
            more_time=max(step.outcome.step_seconds / without - 1.0, 0.0),
        )
        found.append((step.outcome.step_seconds, len(found), how))
    return min(found)[2] if found else None


def _on_one_device(prepared: PreparedModel) -> tuple[Fit, IntArray]:
    """What `Fit` says, and the placement i4[N] that it says it of."""
    problem, usable = prepared.problem, prepared.problem.usable_bytes()
    working, found = working_devices(problem), []  # beside GPUs a host's CPU is no answer
    for placement in single_devices(problem):
        device = int(np.bincount(placement).argmax())  # others hold what has no kernel there
        step = simulated(problem, placement)
        peaks = list(step.peak_bytes.values())
        over = np.array(peaks, dtype=np.float64) - usable
        fits = isinstance(step.outcome, Measurement)
        worst = device if fits else int(over.argmax())
        order = step.outcome.step_seconds if fits else float(over.max())
        fit = Fit(fits, problem.device_names[worst], int(peaks[worst]), int(usable[worst]))
        found.append(((device not in working, not fits, order), (fit, placement)))
    return min(found, key=lambda each: each[0])[1]


def largest_batch(options: ProblemOptions) -> int:
    """The most examples of which one device can hold a step; 0 where none, or one number, fits.

    What a step holds grows about as its batch does, so that the next size to try is read from the
    peaks of the last two.
    """

    @functools.cache
    def fit(batch: int) -> Fit:
        return fit_of(_of_batch(options, batch))

    low, high = 1, FIRST_BATCH
    try:
        if not fit(low).fits:
            return 0
    except FeedError:  # no input leaves its batch open
        return 0
    while fit(high).fits:
        if high >= MOST_EXAMPLES:
            return high
        low, high = high, 8 * high
    while high - low > max(low // 100, 1):
        slope = (fit(high).peak_bytes - fit(low).peak_bytes) / (high - low)
        guess = low + int((fit(high).usable_bytes - fit(low).peak_bytes) / max(slope, 1.0))
        middle = min(max(guess, low + 1), high - 1)
        low, high = (middle, high) if fit(middle).fits else (low, middle)
    return low


def largest_planned(options: ProblemOptions, fitting: int) -> tuple[int, Fit] | None:
    """The most examples, to a tenth, that one device holds with ops that run again, and how.

    So many as `fitting` fit without; where that is 0, none are looked for.
    """
    best: tuple[int, Fit] | None = None
    low, high = fitting, 0  # 0 as long as all that were tried fit
    while 0 < low < MOST_EXAMPLES and (not high or high - low > max(fitting // 10, 1)):
        middle = (low + high) // 2 if high else 2 * low
        found = planned_fit(_of_batch(options, middle), options)
        if found is None:
            high = middle
        else:
            best, low = (middle, found), middle
    return best


def _of_batch(options: ProblemOptions, batch: int) -> PreparedModel:
    load = dataclasses.replace(options.load, batch_size=batch)
    return prepare(dataclasses.replace(options, load=load, num_shards=1), trace=False)


def inspect(prepared: PreparedModel) -> Inspection:
    """Counts and sums over a prepared model."""
    source, graph = prepared.source, prepared.problem.graph
    group_sizes = np.bincount(graph.colocation_group[graph.colocation_group >= 0], minlength=1)
    is_constant = np.asarray(graph.op_types) == "Const"
    persistent = graph.op_persistent_bytes
    return Inspection(
        path=source.path,
        kind=source.kind,
        mode=source.mode,
        step_origin=source.step_origin,
        guessed=source.guessed,
        signatures=sorted(prepared.to_split.source.signatures),  # those of the model as it came
        num_ops=graph.num_ops,
        num_tensors=graph.num_tensors,
        num_edges=len(graph.use_op),
        num_functions=len({o.function for o in prepared.flat.origins if o.function}),
        num_colocation_groups=int((group_sizes > 0).sum()),
        largest_colocation_group=int(group_sizes.max()),
        devices_asked=dict(
            collections.Counter(node.device for node in prepared.flat.graph_def.node).most_common()
        ),
        trainable_bytes=source.trainable_bytes,
        variable_bytes=int(persistent[~is_constant].sum()),
        constant_bytes=int(persistent[is_constant].sum()),
        flops=prepared.costs.flops,
        op_types=_op_types(prepared.problem),
        units=prepared.costs.units(prepared.flat),
        opened=prepared.flat.opened,
        unknown_shapes=len(prepared.properties.unknown),
        unpriced_ops=_counted(np.flatnonzero(~prepared.costs.covered), graph.op_types),
        without_gpu_kernel=_without_gpu_kernel(prepared),
        cluster=prepared.cluster.name,
        split=split_facts_with_work(prepared.split),
        fits=fit_of(prepared),
    )


def _op_types(problem: Problem) -> list[OpTypeRow]:
    graph = problem.graph
    fastest = problem.op_seconds.min(axis=1)
    out_bytes = np.bincount(graph.tensor_producer, graph.tensor_bytes, graph.num_ops)
    rows = [
        OpTypeRow(op_type, num_ops, seconds, int(num_bytes))
        for op_type, num_ops, seconds, num_bytes in graph.by_type(fastest, out_bytes)
    ]
    return sorted(rows, key=lambda row: (-row.seconds, row.op_type))


def _without_gpu_kernel(prepared: PreparedModel) -> dict[str, int]:
    gpus = [d for d, kind in enumerate(prepared.problem.device_types) if kind == "GPU"]
    if not gpus:
        return {}
    nowhere = ~np.isfinite(prepared.costs.op_seconds[:, gpus]).any(axis=1)
    return _counted(np.flatnonzero(nowhere), prepared.problem.graph.op_types)


def _counted(ops: np.ndarray, op_types: Sequence[str]) -> dict[str, int]:
    return dict(collections.Counter(op_types[op] for op in ops.tolist()).most_common())


def print_inspection(inspection: Inspection, out: Console) -> None:
    """Prints facts first, then the ops by type."""
    print_facts(_facts(inspection), out, name_width=13)
    types = table(("op type", "ops", f"time on {inspection.cluster}", "output"))
    for row in inspection.op_types[:MAX_ROWS]:
        types.add_row(
            row.op_type, f"{row.num_ops:,}", seconds_text(row.seconds), bytes_text(row.output_bytes)
        )
    out.print(types)
    more = len(inspection.op_types) - MAX_ROWS
    if more > 0:
        out.print(f"and {counted(more, 'more op type')} (--format=json has all)")


def _facts(model: Inspection) -> Iterator[tuple[str, str]]:
    yield "model", f"{model.path} ({model.kind})"
    if model.fits is not None:
        yield "fits", _fit_text(model.fits, "yes" if model.fits.fits else "not on one device")
    if model.planned is not None:
        yield "fits", _fit_text(model.planned, "yes, with a memory plan")
    if model.largest_batch is not None:
        exact = "to a hundredth" if model.largest_batch < MOST_EXAMPLES else "more were not tried"
        found = f"{counted(model.largest_batch, 'example')} on one device, {exact}"
        yield "largest batch", found if model.largest_batch else "no other size, or none that fits"
    if model.largest_planned is not None:
        batch, fit = model.largest_planned
        yield "largest batch", _fit_text(fit, f"{counted(batch, 'example')} with a memory plan")
    mode = "training" if model.mode == "train" else model.mode
    yield "run", f"{mode}: {model.step_origin}"
    yield from (("guessed", sentence) for sentence in model.guessed)
    yield "signatures", ", ".join(model.signatures) or "none"
    yield (
        "size",
        f"{counted(model.num_ops, 'op')}, {counted(model.num_tensors, 'tensor')}, "
        f"{counted(model.num_edges, 'edge')}, {counted(model.num_functions, 'function')} opened",
    )
    largest = f"the largest of {counted(model.largest_colocation_group, 'op')}"
    yield "colocation", f"{counted(model.num_colocation_groups, 'group')}, {largest}"
    yield "devices", _counts(model.devices_asked, "none asked for")
    yield (
        "memory",
        f"variables {bytes_text(model.variable_bytes)} "
        f"(trainable {bytes_text(model.trainable_bytes)}), "
        f"constants {bytes_text(model.constant_bytes)}",
    )
    yield "FLOPs", f"{count_text(model.flops)} a step"
    yield "unknown", f"{counted(model.unknown_shapes, 'tensor')} of unknown size"
    yield "unpriced", _counts(model.unpriced_ops) or "nothing"
    if model.without_gpu_kernel:
        yield "CPU only", _counts(model.without_gpu_kernel)
    if model.split is not None:
        yield from split_sentences(model.split)
    if model.not_split:
        yield "split", model.not_split
    for name, sentences in (("unit", model.units), ("opened", model.opened)):
        for op, what in itertools.islice(sentences.items(), MAX_ROWS):
            yield name, f"{op}: {what}"


def _fit_text(fit: Fit, answer: str) -> str:
    text = f"{answer}, peak {bytes_text(fit.peak_bytes)} of {bytes_text(fit.usable_bytes)} of "
    counts = fit.runs_again, fit.on_host, fit.sums_in_turn, fit.lists_in_turn
    if not fit.variables_on_host + sum(counts):
        return text + fit.device
    again = plan_words(*counts)
    if fit.variables_on_host:
        plan = f", {again}" if any(counts) else ""
        again = f"variables and what updates them lie on the host{plan}"
    return f"{text}{fit.device}: {again}, {share_text(fit.more_time)} more time"


def _counts(counts: Mapping[str, int], empty_key: str = "") -> str:
    """ "MatMul 12, Add 3"; `empty_key` stands for the key ""."""
    shown = [
        f"{key or empty_key} {count:,}"
        for key, count in itertools.islice(counts.items(), MAX_COUNTS)
    ]
    if len(counts) > MAX_COUNTS:
        shown.append(f"and {len(counts) - MAX_COUNTS} more")
    return ", ".join(shown)
