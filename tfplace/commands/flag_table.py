"""Every flag of every command, defined once."""

import dataclasses
import math

from absl import flags

from graphs.host.did_you_mean import did_you_mean

Value = str | int | float | bool | None | list[str]


@dataclasses.dataclass(frozen=True)
class Flag:
    """A flag.

    Attributes:
      name: without dashes.
      kind: one of string, integer, float, boolean, enum, and multi: may be given several times.
      default: the value where it is not given.
      help: what --help says.
      choices: the values of an enum.
      least: the least value of a number, None for any.
    """

    name: str
    kind: str
    default: Value
    help: str
    choices: tuple[str, ...] = ()
    least: float | None = None


FORMAT = (
    Flag("format", "enum", "text", "what is printed on stdout", ("text", "json")),
    Flag(
        "verbosity",
        "integer",
        0,
        "-1: only errors and the result; 1: tracebacks, log lines; 2: TensorFlow's too",
    ),
)
OP_LIBRARY = (
    Flag(
        "op_library",
        "multi",
        [],
        "PATH,PATH,...: libraries with ops of the model, as for tf.load_op_library: they are code "
        "that runs",
    ),
)
RUN = (
    Flag("fetch", "multi", [], "op or tensor that a run asks for; may be given several times"),
    Flag(
        "feed",
        "string",
        None,
        "an .npz file of inputs, by name of a tensor, op or signature argument",
    ),
    Flag("signature", "string", "", "the signature that a run calls"),
    Flag("mode", "enum", "", "what a run is (default: as found)", ("", "train", "inference")),
    Flag("batch_size", "integer", None, "fills unknown leading dimensions", least=1),
    Flag("input_shape", "multi", [], "NAME=2,3 fills unknown dimensions of one input"),
    Flag(
        "tags",
        "string",
        "",
        "A,B,...: which MetaGraphDef of a SavedModel with several is read, by all of its tags",
    ),
    *OP_LIBRARY,
)
CLUSTER_NAME = (
    Flag(
        "cluster",
        "string",
        "local",
        "local, a named cluster such as k80x4 (`tfplace devices` lists them), a cluster file "
        ".json, workers:N, gpu_split:N, or tf_config",
    ),
)
CALIBRATED_CLUSTER = (
    Flag(
        "cluster",
        "string",
        "local",
        "what is here: local, workers:N, gpu_split:N, tf_config, or a cluster file .json of such "
        "devices",
    ),
)
MEMORY_RESERVE = (
    Flag("memory_reserve", "float", 0.1, "fraction of each device's memory kept free"),
)
CLUSTER = CLUSTER_NAME + MEMORY_RESERVE
COST_CACHE_DIR = (
    Flag(
        "cost_cache_dir",
        "string",
        None,
        "where op costs are kept between runs (default: $TFPLACE_CACHE_DIR, or tfplace in the "
        "user's cache folder)",
    ),
)
COST_CACHE = (
    Flag("cost_cache", "boolean", True, "use op costs found by an earlier run, and keep new ones"),
    *COST_CACHE_DIR,
)
CLEAR_CACHE = (Flag("clear", "boolean", False, "remove everything that is kept"),)
CONSTRAINTS = (
    Flag(
        "pin",
        "multi",
        [],
        "REGEX=DEVICE: ops with a match anywhere in their name (^ and $ bind it to the ends) lie "
        "there; may be given several times",
    ),
    Flag(
        "no_split",
        "multi",
        [],
        "REGEX: ops with a match anywhere in their name share one device; may be given several "
        "times",
    ),
    Flag(
        "keep_devices",
        "boolean",
        False,
        "pin ops to the device strings that they have, where the cluster has such devices",
    ),
    Flag(
        "free_gradients",
        "boolean",
        True,
        "place gradient ops apart from their forward ops; without it they share a device",
    ),
)
SHARDS = (
    Flag(
        "shards",
        "string",
        "1",
        "into how many parts the step's batch is split before its ops are placed",
    ),
)
BENCH_SHARDS = (
    dataclasses.replace(SHARDS[0], help=f"{SHARDS[0].help}; auto: 1, 2, 4, ... are tried"),
)
SEARCHED_SHARDS = (
    Flag(
        "shards",
        "string",
        "auto",
        "into how many parts the step's batch is split before its ops are placed; auto: 1, 2, 4, "
        "... are tried; if not given, 1 with another --algorithm than auto, --policy, "
        "--checkpoint_dir or --evaluator=measure",
    ),
)
BATCH_AXIS = (
    Flag(
        "batch_axis",
        "multi",
        [],
        "NAME=AXIS: which axis of an input is its batch (default: found); -1: it is not split; may "
        "be given several times",
    ),
)
SPLIT = SHARDS + BATCH_AXIS
ORDER = (
    Flag(
        "order",
        "enum",
        "none",
        "edges: ops of a device start in an order that control edges keep to, where that is "
        "predicted to be faster or to fit; none: first come, first served",
        ("none", "edges"),
    ),
)
BENCH_ORDER = (dataclasses.replace(ORDER[0], help=f"{ORDER[0].help}; edges: with --shards=auto"),)
SEARCHED_ORDER = (
    Flag(
        "order",
        "enum",
        "auto",
        f"{ORDER[0].help}; auto: edges with --shards, where the cluster's devices are not here",
        ("auto", "none", "edges"),
    ),
)
PROBLEM = RUN + CONSTRAINTS + SPLIT + COST_CACHE
SEARCHED_PROBLEM = RUN + CONSTRAINTS + SEARCHED_SHARDS + BATCH_AXIS + COST_CACHE
SEED = (Flag("seed", "integer", 0, "of every random choice", least=0),)
BUDGET = (
    Flag("budget_seconds", "float", 60.0, "wall time of the search", least=0),
    Flag("max_trials", "integer", None, "evaluated placements, at most", least=1),
)
ALGORITHM = (
    Flag(
        "algorithm",
        "string",
        "auto",
        "auto; a published system: colocrl, hierarchical, spotlight, post, placeto; a simple "
        "method: given, single, random, expert, topological, etf, sct, heft, metis, local_search",
    ),
)
SEARCH = (
    *ALGORITHM,
    Flag(
        "evaluator",
        "enum",
        "auto",
        "simulate; measure; auto: search in the simulator, then measure the best",
        ("auto", "simulate", "measure"),
    ),
    Flag(
        "max_devices",
        "integer",
        None,
        "place on so many devices at most; beside GPUs, CPUs are not counted",
        least=1,
    ),
    Flag("policy", "string", None, "a checkpoint from `tfplace train`, or a shipped one's name"),
    *BUDGET,
    *SEED,
)
CHECKPOINT_DIR = (
    Flag(
        "checkpoint_dir",
        "string",
        None,
        "keep the search there after every update; killed, the same command goes on from it",
    ),
)
OUTPUT_DIR = (
    Flag("output_dir", "string", None, "where the SavedModel goes (default: MODEL_placed)"),
    Flag("overwrite", "boolean", False, "replace what is already there"),
    Flag(
        "emit",
        "string",
        "saved_model",
        "what is left in it, A,B,...: saved_model; graph_def and cleared (a copy without any "
        "device) in its assets.extra/tfplace; python: placement.py there, {scope: device} to paste",
    ),
)
VERIFY = (
    Flag(
        "verify",
        "enum",
        "auto",
        "structure: both graphs are compared, which is always done; run: both models are run on "
        "the same inputs, too; auto: where that takes little",
        ("auto", "structure", "run"),
    ),
)
DUMP = (Flag("dump_problem", "string", None, "write what the simulator saw as .npz"),)
LOGDIR = (
    Flag("logdir", "string", None, "write TensorBoard's event files of the run below this folder"),
)
SEARCH_FILES = CHECKPOINT_DIR + DUMP + LOGDIR
PLACEMENT = (
    Flag(
        "placement",
        "string",
        None,
        "a placement.json, {op: device} (default: the model as it came, alone)",
    ),
)
SOLUTION = (
    Flag(
        "placement",
        "string",
        None,
        "the file to write: .json, {op: device}; or .npz, the problem with the placement in it",
    ),
    Flag("overwrite", "boolean", False, "replace what is already there"),
)
SIMULATE = (
    Flag("timeline", "string", None, "write the schedule as a Chrome trace"),
    Flag(
        "repeat",
        "integer",
        None,
        "simulate it that many times on all cores and say how fast that was",
        least=1,
    ),
)
MEASURE = (
    Flag("steps", "integer", 10, "timed steps of each graph, at least", least=1),
    Flag("budget_seconds", "float", 60.0, "wall time of measuring", least=0),
    Flag("memory", "boolean", True, "also run a few steps to measure the peak memory"),
)
CALIBRATE = (Flag("budget_seconds", "float", 60.0, "about how long to measure", least=0),)
FIDELITY = (
    Flag("placements", "integer", 30, "how many to predict and to measure", least=1),
    Flag("rounds", "integer", 7, "timed steps of each placement, interleaved", least=1),
    Flag("trace", "integer", 3, "placements to trace, the worst predicted first", least=0),
    Flag("picture", "string", None, "a .png of predicted against measured step times"),
)
SIZES = (
    Flag("size", "enum", "published", "the papers' sizes, or small", ("published", "tiny")),
    Flag("batch_size", "integer", None, "examples of a step", least=1),
    Flag("num_layers", "integer", None, "layers, where the model has a number", least=1),
    Flag("hidden_size", "integer", None, "width of a layer", least=1),
    Flag("num_steps", "integer", None, "unrolled time steps", least=1),
    Flag("vocab_size", "integer", None, "words", least=2),
)


def output(what: str) -> tuple[Flag, ...]:
    """--output and --overwrite of a command that writes one file, or what lies beside it."""
    return (
        Flag("output", "string", None, what),
        Flag("overwrite", "boolean", False, "replace what is already there"),
    )


EXECUTOR = (
    Flag(
        "executor",
        "enum",
        "local",
        "local: processes of this host; ray: the nodes of a Ray cluster",
        ("local", "ray"),
    ),
    Flag("ray_address", "string", None, "HOST:PORT of Ray's head node (default: this host's)"),
)
BENCH = (
    Flag(
        "models",
        "string",
        "rnnlm",
        "benchmark graphs (`tfplace graph --help` names them; nmt:num_layers=4) or paths, A,B,...",
    ),
    Flag("clusters", "string", "k80x2", "as --cluster of the other commands, A,B,..."),
    Flag(
        "algorithms",
        "string",
        "random,local_search,spotlight",
        "as --algorithm of `tfplace optimize`, A,B,...",
    ),
    Flag("seeds", "string", "1", "seeds, 1,2,3"),
    Flag("parallel", "integer", None, "cells at a time (default: one per core)", least=1),
    *EXECUTOR,
    Flag("budget_seconds", "float", 60.0, "wall time of each cell's search", least=0),
    Flag("max_trials", "integer", None, "evaluated placements of each cell, at most", least=1),
)
TRAIN = (
    Flag("family", "string", "rnnlm", "graphs to train on: variations of rnnlm, nmt or cifar10"),
    Flag("clusters", "string", "k80x2,k80x4", "clusters, A,B,..."),
    Flag("num_graphs", "integer", 32, "a quarter of them is held out", least=2),
    Flag("episodes", "integer", None, "episodes in all, at most", least=0),
    Flag("budget_seconds", "float", 300.0, "wall time of the training", least=0),
)

LIMITS = (
    Flag("time_limit_seconds", "float", None, "a job is killed after so long", least=0),
    Flag("memory_limit", "string", None, "as 8GiB: a job is killed that takes more"),
)
BATCH = (
    Flag("output_dir", "string", None, "where summary, logs and states go (default: JOBS_batch)"),
    Flag("parallel", "integer", None, "jobs at a time (default: 1; on Ray one per CPU)", least=1),
    *EXECUTOR,
    Flag("resume", "boolean", True, "jobs that are done stay done"),
    *LIMITS,
    Flag("num_gpus", "integer", 0, "GPUs that a job needs for itself", least=0),
)
JOB = (
    Flag("name", "string", None, "of the job; {model}, {seed} and so on are filled in"),
    *LIMITS,
    Flag("num_gpus", "integer", None, "GPUs that the job needs for itself", least=0),
)


class _Choice(flags.EnumParser):
    """As absl's, but a misspelt value is told with the one it is most like."""

    def parse(self, argument: str) -> str:
        if argument not in self.enum_values:
            wanted = [value for value in self.enum_values if value]
            raise ValueError(
                f"wanted one of {', '.join(wanted)}{did_you_mean(str(argument), wanted)}"
            )
        return argument


class _Number(flags.FloatParser):
    """As absl's, but nan, which is neither below nor above any bound, is none."""

    def convert(self, argument: str | float) -> float:
        value = float(super().convert(argument))
        if math.isnan(value):
            raise ValueError(f"wanted {self.syntactic_help}")
        return value


def define(table: tuple[Flag, ...]) -> flags.FlagValues:
    """Fresh absl FlagValues of one command; `--flagfile` works in all of them."""
    values = flags.FlagValues()
    for flag in table:
        words = flag.name, flag.default, flag.help
        if flag.kind == "boolean":
            flags.DEFINE_boolean(*words, flag_values=values)
        elif flag.kind == "multi":
            flags.DEFINE_multi_string(*words, flag_values=values)
        else:
            text = flags.ArgumentSerializer()
            flags.DEFINE(_parser(flag), *words, flag_values=values, serializer=text)
    return values


def _parser(flag: Flag) -> flags.ArgumentParser:
    if flag.kind == "integer":
        return flags.IntegerParser(flag.least)
    if flag.kind == "float":
        return _Number(flag.least)
    return _Choice(flag.choices) if flag.kind == "enum" else flags.ArgumentParser()
