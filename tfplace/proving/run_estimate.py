"""What running the given and the emitted model would take, and whether that is worth it.

Two models are loaded and run, two steps each when they train, on this machine's CPU. All figures
are rough, and rather too high: a comparison that was thought to be cheap is ended when it takes
several times what was estimated, and more than would have been too much beforehand: a busy machine
takes several times 2 s for its start alone.
"""

import dataclasses
import math

import numpy as np

from graphs.protos import JsonObject
from rewrite.split.prove.written.prove_loads import LOADS
from rewrite.verify import RunLimits
from tfplace.budget import PARTS
from tfplace.preparing.prepare import PreparedModel
from tfplace.simulation.simulated import simulated

STRUCTURE, RUN, AUTO = "structure", "run", "auto"
MEMORY_SHARE = 0.5
"""Of what is free: by "auto", a run that is compared takes no more."""
_NUM_MODELS = 2
_START_SECONDS = 2.0
"""Of a process that is forked with TensorFlow in it; one that has to import it takes 3 s more."""
_SECONDS_PER_OP = 7e-4
"""To load, optimise and start an op (a Keras encoder's 5,000, on a slow core)."""
_LOAD_BYTES_PER_SECOND = 200e6
_CPU_EFFICIENCY = 0.2
_STEP_SECONDS_PER_OP = 20e-6
"""What the executor takes to start an op."""
_CPU_PER_OTHER = 20.0
"""A step on a CPU takes so many times what it takes on what the cluster has instead."""
_START_BYTES = 0.8 * 2**30
_BYTES_PER_OP = 50e3
_COPIES_OF_VARIABLES = 4
"""In the session, read before and after, and as the loader has them."""
_GENEROUS_SECONDS, _GENEROUS_BYTES = 3.0, 2.0
_MOST_MEMORY_SHARE = 0.8


@dataclasses.dataclass(frozen=True)
class RunEstimate:
    """Attributes: what comparing the run once takes in seconds, and in bytes of memory."""

    seconds: float
    bytes: float


@dataclasses.dataclass(frozen=True)
class Decision:
    """Attributes: the limits to run under; None where nothing is run, and why not."""

    limits: RunLimits | None
    why: str = ""


def estimate_run(
    prepared: PreparedModel, device_of_op: np.ndarray, share: float = 1.0
) -> RunEstimate:
    """Estimates one comparison of the run, with a share of its batch.

    seconds = start + models (ops seconds_per_op + bytes / bandwidth + steps step_seconds);
    bytes = start + ops bytes_per_op + copies variables + models activations.
    """
    problem = prepared.problem
    variables = float(problem.graph.op_persistent_bytes.sum())
    peak = float(sum(simulated(problem, device_of_op).peak_bytes.values()))
    num_steps = 2 if prepared.source.mode == "train" else 1
    loading = problem.num_ops * _SECONDS_PER_OP + variables / _LOAD_BYTES_PER_SECOND
    running = share * num_steps * cpu_step_seconds(prepared)
    return RunEstimate(
        seconds=_START_SECONDS + _NUM_MODELS * (loading + running),
        bytes=_START_BYTES
        + problem.num_ops * _BYTES_PER_OP
        + _COPIES_OF_VARIABLES * variables
        + share * _NUM_MODELS * max(peak - variables, 0.0),
    )


def cpu_step_seconds(prepared: PreparedModel) -> float:
    """All ops one after the other on this machine's CPU.

    Measured, where the cluster is this machine; else as the cluster's first CPU is priced, at the
    efficiency of an ordinary one.
    """
    problem = prepared.problem
    seconds = problem.op_seconds
    own = seconds.min(axis=1) * _CPU_PER_OTHER
    cpus = [d for d, kind in enumerate(problem.device_types) if kind == "CPU"]
    if cpus:
        device = prepared.cluster.devices[cpus[0]]
        scale = 1.0 if prepared.is_present else device.efficiency / _CPU_EFFICIENCY
        on_cpu = seconds[:, cpus[0]] * scale
        own = np.where(np.isfinite(on_cpu), on_cpu, own)
    return float(own[np.isfinite(own)].sum()) + problem.num_ops * _STEP_SECONDS_PER_OP


def decide(
    estimate: RunEstimate,
    wanted: str,
    budget_seconds: float,
    free_bytes: float,
    seconds_left: float = math.inf,
) -> Decision:
    """Whether to run, and within which limits.

    Args:
      wanted: as for --verify.
      budget_seconds: of the search.
      free_bytes: memory that the machine has left.
      seconds_left: what is left for "auto" of the time for all of the command.
    """
    most_bytes = _MOST_MEMORY_SHARE * free_bytes
    if wanted == STRUCTURE:
        return Decision(None, "--verify=structure")
    if wanted == RUN:
        return Decision(RunLimits(memory_bytes=most_bytes))
    others = max(seconds_left, 1.0)  # what is compared beside the run has no promise
    verifying = PARTS["verifying"]
    seconds_left = max(seconds_left, verifying.least)  # promised, however long all else took
    seconds = min(verifying.of(budget_seconds), seconds_left)
    if estimate.seconds > seconds or estimate.bytes > MEMORY_SHARE * free_bytes:
        return Decision(
            None,
            f"it would take about {estimate.seconds:.0f} s and {estimate.bytes / 2**30:.1f} GiB, "
            f"more than {seconds:.0f} s or {MEMORY_SHARE * free_bytes / 2**30:.1f} GiB (half of "
            "what is free); --verify=run runs it all the same",
        )
    limit = min(max(_GENEROUS_SECONDS * estimate.seconds, seconds), seconds_left)
    return Decision(
        RunLimits(
            seconds=limit,
            all_seconds=limit,
            budget_seconds=min(seconds, others),
            memory_bytes=min(_GENEROUS_BYTES * estimate.bytes, most_bytes),
        )
    )


def split_proof_sentence(proof: JsonObject, run: str = "") -> str:
    """What was proven, for a person; `run` is what is said of comparing the run besides."""
    if proof["distinct_ops"] is None:
        return "the split step has the structure that was decided; interrupted before more"
    joints = "joins, sums and cuts stand where they should"
    text = (
        f"{proof['proven_ops']:,} of {proof['distinct_ops']:,} distinct split ops give in "
        "parts what they give whole"
    )
    if exact := proof["exact_ops"]:
        rest = "" if exact == proof["proven_ops"] else ", the others but for rounding errors"
        text += f", {exact:,} of them bit for bit{rest}"
    if smaller := proof["smaller_ops"]:
        text += f" ({smaller:,} of them tried in few shards of few entries, with narrow weights)"
    text += f"; {joints}"
    if norms := proof["norms"]["distinct"]:
        text += f"; {proof['norms']['proven']:,} of {norms:,} batch normalisations are as fused"
    if proof["loads"] != LOADS:
        text += f"; {proof['loads']}"
    if proof["unproven"]:
        return f"NOT PROVEN: {proof['unproven']}. {text[0].upper()}{text[1:]}"
    if proof["run"].startswith("not run"):
        return text if proof["run"] == run else f"{text}; whole steps {proof['run']}"
    of_batch = f"two steps of {proof['run_batch']:,} entries in float64"
    return f"{text}; {of_batch}: {proof['run']}, {proof['compared']:,} values"
