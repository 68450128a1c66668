"""The commands of tfplace: what each takes, its flags, examples."""

import dataclasses
import importlib
from collections.abc import Sequence

from absl import flags

from graphs.host.op_libraries import load_named_op_libraries, load_op_libraries
from graphs.zoo.catalogue import NAMES
from tfplace.commands import flag_table as table
from tfplace.commands.flag_table import Flag
from tfplace.commands.quiet import quiet_tensorflow


@dataclasses.dataclass(frozen=True)
class Command:
    """A command of tfplace; tfplace/commands has a module of its name, with a function `run`.

    Attributes:
      argument: what stands behind its name in the usage line; "" where it takes nothing.
      summary: one line.
      own_flags: what it takes beside --format and --verbosity, which all take.
      examples: command lines that work.
      about_argument: what the argument may be, a sentence; "" where its name says it.
    """

    argument: str
    summary: str
    own_flags: tuple[Flag, ...]
    examples: tuple[str, ...]
    about_argument: str = ""

    @property
    def flags(self) -> tuple[Flag, ...]:
        """All flags, in the order of --help."""
        return self.own_flags + table.FORMAT


COMMANDS = {
    "optimize": Command(
        "MODEL",
        "place a model's ops, emit a SavedModel, verify and time it, report",
        table.OUTPUT_DIR
        + table.VERIFY
        + table.CLUSTER
        + table.SEARCH
        + table.SEARCHED_PROBLEM
        + table.SEARCHED_ORDER
        + table.SEARCH_FILES,
        (
            "tfplace optimize model.pb",
            "tfplace optimize saved_model_dir --cluster=workers:2 --output_dir=placed",
            "tfplace optimize rnnlm.pb --algorithm=spotlight --cluster=k80x2",
        ),
    ),
    "inspect": Command(
        "MODEL",
        "show what is in a model: ops by type, colocation, devices, bytes",
        table.CLUSTER + table.PROBLEM,
        ("tfplace inspect model.pb", "tfplace inspect saved_model_dir --format=json"),
    ),
    "check": Command(
        "MODEL",
        "would the model's device strings run on a cluster, op by op",
        table.CLUSTER + table.RUN + table.SPLIT + table.COST_CACHE,
        (
            "tfplace check placed_dir --cluster=k80x2",
            "tfplace check model.pb --cluster=box.json --format=json",
        ),
    ),
    "measure": Command(
        "MODEL",
        "time training runs, alone or against a placement, interleaved",
        table.PLACEMENT
        + table.MEASURE
        + table.CLUSTER
        + table.SEED
        + table.RUN
        + table.SPLIT
        + table.ORDER,
        (
            "tfplace measure model.pb --cluster=workers:2",
            "tfplace measure model.pb --cluster=workers:2 --placement=placement.json",
        ),
    ),
    "simulate": Command(
        "MODEL",
        "predict step time, peak memory and timeline of a placement",
        table.PLACEMENT + table.SIMULATE + table.CLUSTER + table.PROBLEM + table.ORDER + table.DUMP,
        (
            "tfplace simulate model.pb --cluster=k80x4",
            "tfplace simulate model.pb --cluster=k80x4 --placement=placement.json",
        ),
    ),
    "solve": Command(
        "PROBLEM.npz",
        "search any graph's problem, written as --dump_problem writes it",
        table.SOLUTION + table.ALGORITHM + table.BUDGET + table.SEED,
        (
            "tfplace solve problem.npz --placement=best.json",
            "tfplace solve problem.npz --algorithm=etf --format=json",
        ),
    ),
    "graph": Command(
        "NAME",
        "write a benchmark training graph as GraphDef or SavedModel",
        table.output("a .pb, .pbtxt or .meta file, or a folder for a SavedModel") + table.SIZES,
        (
            "tfplace graph rnnlm --output=rnnlm.pb",
            "tfplace graph nmt --num_layers=4 --output=nmt4.pb",
            "tfplace graph cifar10 --size=tiny --output=cifar10_saved_model",
        ),
        f"NAME is one of {', '.join(NAMES)}; more of its sizes can be given behind it, as in "
        "inception_v3:image_size=75.",
    ),
    "bench": Command(
        "",
        "compare algorithms over models and clusters at equal budgets",
        table.BENCH
        + table.OP_LIBRARY
        + table.BENCH_SHARDS
        + table.BENCH_ORDER
        + table.output("FILE.json; FILE.csv, FILE.md and FILE.png are written beside it")
        + table.MEMORY_RESERVE,
        (
            "tfplace bench --models=rnnlm,nmt:num_layers=4 --clusters=k80x2,k80x4 "
            "--algorithms=random,spotlight --seeds=1,2,3 --max_trials=1000 --output=bench.json",
        ),
    ),
    "train": Command(
        "",
        "train one policy over a family of graphs, for optimize --policy",
        table.TRAIN + table.SEED + table.output("the policy, FILE.npz") + table.CHECKPOINT_DIR,
        (
            "tfplace train --family=rnnlm --output=rnnlm.npz",
            "tfplace train --family=nmt --clusters=k80x4 --episodes=500 --output=nmt.npz",
        ),
    ),
    "fidelity": Command(
        "MODEL",
        "compare predicted with measured step times over many placements",
        table.FIDELITY
        + table.CLUSTER
        + table.SEED
        + table.output("a file for the result as JSON")
        + table.PROBLEM
        + table.ORDER,
        (
            "tfplace fidelity model.pb --cluster=workers2.json",
            "tfplace fidelity model.pb --cluster=workers2.json --placements=30 "
            "--output=fidelity.json --picture=fidelity.png",
        ),
    ),
    "calibrate": Command(
        "",
        "measure this machine's devices and links, write a cluster file",
        table.CALIBRATED_CLUSTER + table.CALIBRATE + table.output("the cluster file, FILE.json"),
        (
            "tfplace calibrate --cluster=workers:2 --output=workers2.json",
            "tfplace calibrate --output=here.json --format=json",
        ),
    ),
    "batch": Command(
        "JOBS",
        "run many commands, one line each: isolated, resumable, one summary",
        table.BATCH,
        (
            "tfplace batch jobs.txt",
            "tfplace batch jobs.txt --parallel=2 --time_limit_seconds=3600 --memory_limit=8GiB",
        ),
    ),
    "devices": Command(
        "",
        "list the named clusters and the devices visible here",
        table.CLUSTER_NAME,
        ("tfplace devices", "tfplace devices --cluster=k80x4 --format=json"),
    ),
    "cache": Command(
        "",
        "list the op costs kept between runs, or remove them",
        table.CLEAR_CACHE + table.COST_CACHE_DIR,
        ("tfplace cache", "tfplace cache --clear"),
    ),
}


def load_flagged(values: flags.FlagValues) -> None:
    """Loads what --op_library names, for commands that have it.

    Raises:
      ModelError: a library can't be loaded.
    """
    words = values.op_library if "op_library" in values else []
    load_op_libraries(path.strip() for word in words for path in word.split(","))


def run_command(name: str, arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Runs a command of the table; returns its exit status.

    Raises:
      TfplaceError: it can't do what it was asked.
    """
    if name != "batch":  # its jobs are processes, each with a --verbosity of its own
        quiet_tensorflow(values.verbosity)
    load_named_op_libraries()  # where it is a job of another process
    load_flagged(values)
    return importlib.import_module(f"tfplace.commands.{name}").run(arguments, values)
