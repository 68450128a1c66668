"""One model of the corpus: made, placed over two devices, emitted, loaded again, compared."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from graphs.building.build import origin_devices
from graphs.errors import ModelError
from graphs.function_library import bodies
from graphs.loading.load_options import LoadOptions
from graphs.loading.sniff import sniff
from rewrite import verify
from rewrite.emit import emit
from tests.corpus.entry import Entry
from tfplace.algorithms.placers.one_shot import Random
from tfplace.cli import main
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import PreparedModel, prepare
from tfplace.proving.proof import verified

_NEEDS_ITS_DEVICES = tf.errors.InvalidArgumentError.__name__
"""What a model of a cluster that is gone fails with; placed, it loads."""
_FREE = {"bytes_per_second": 1e15, "latency_seconds": 1e-12}


@dataclasses.dataclass
class Result:
    """What came of a model.

    Attributes:
      name, family: of the entry.
      num_ops: of the opened run; 0 for a model that is refused.
      devices: how many devices the emitted graphs name.
      compared, left: numbers of values compared, and not.
      outcome: "same", "refused", or what went wrong.
    """

    name: str
    family: str
    num_ops: int = 0
    devices: int = 0
    compared: int = 0
    left: Sequence[str] = ()
    outcome: str = "same"


def write_cluster(folder: Path, num_gpus: int = 0) -> str:
    """A cluster file of two equal slow CPU devices with free links: splitting always pays.

    Args:
      folder: to write it to.
      num_gpus: that it has beside them, for which only some ops have kernels.
    """
    device = {"memory": "64GiB", "slots": 1, "efficiency": 1e-6, "cores": 1, "frequency_mhz": 2000}
    device |= {"bandwidth_bytes_per_second": 1e9}
    cpu = {"type": "CPU", "architecture": "avx2", **device}
    gpu = {"type": "GPU", "architecture": "3.7", **device}
    value = {
        "name": "two_cpus",
        "communication": "duplex",
        "devices": [
            *({"name": f"/device:CPU:{i}", **cpu} for i in range(2)),
            *({"name": f"/device:GPU:{i}", **gpu} for i in range(num_gpus)),
        ],
        "default_link": _FREE,
    }
    path = folder / f"two_cpus_and_{num_gpus}_gpus.json"
    path.write_text(json.dumps(value))
    return str(path)


def check_model(entry: Entry, folder: Path, as_user: bool) -> Result:
    """Makes a model, places it at random op by op and emits it, and compares.

    Args:
      entry: the model.
      folder: an empty one.
      as_user: whether to do the same with `tfplace optimize`, too.
    """
    model_folder = folder / "model"
    model_folder.mkdir()
    path = entry.build(model_folder)
    result = Result(entry.name, entry.family)
    if as_user or entry.refused:
        report, said = _as_a_user(entry, path, write_cluster(folder), folder)
        if report is None:
            one_line = said.count("\n") == 1 and said.startswith("tfplace: error: ")
            as_wanted = entry.refused and entry.refused in said and one_line
            result.outcome = "refused" if as_wanted else said
            return result
        _take(result, entry, report["verified"], "optimize")
    if entry.refused:
        result.outcome = f"wanted {entry.refused!r}, but it was placed"
        return result
    _at_random(result, entry, path, write_cluster(folder, num_gpus=1), folder)
    return result


def _as_a_user(
    entry: Entry, path: str, cluster: str, folder: Path
) -> tuple[Mapping[str, Any] | None, str]:
    """The report of `tfplace optimize`, or None and what it said."""
    words = ["optimize", path, f"--cluster={cluster}", f"--output_dir={folder / 'placed'}"]
    words += ["--algorithm=random", "--max_trials=32", "--budget_seconds=5", "--overwrite"]
    words += ["--verbosity=-1", "--format=json", "--verify=run", *entry.flags]
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        status = main(words)
    if status:
        return None, said.getvalue()
    report = folder / "placed/assets.extra/tfplace/report.json"
    return json.loads(report.read_text()), ""


def load_fields(entry: Entry) -> dict[str, Any]:
    """The LoadOptions that a model's flags say, {field: value}."""
    fields: dict[str, Any] = {}
    for flag in entry.flags:
        name, _, value = flag.removeprefix("--").partition("=")
        read = {"tags": lambda v: tuple(v.split(",")), "batch_size": int}.get(name, str)
        fields[name] = read(value)
    return fields


def _prepared(entry: Entry, path: str, cluster: str) -> PreparedModel:
    load = load_fields(entry)
    if not {"mode", "signature", "fetch"} & set(load):  # a step is made wherever that is possible
        with contextlib.suppress(ModelError):
            made = LoadOptions(**load, mode="train")
            return prepare(ProblemOptions(path, made, cluster), trace=False)
    return prepare(ProblemOptions(path, LoadOptions(**load), cluster), trace=False)


def _at_random(result: Result, entry: Entry, path: str, cluster: str, folder: Path) -> None:
    """Emits a random placement of single ops, whatever its step time, and compares."""
    found = _prepared(entry, path, cluster)
    result.num_ops = found.problem.num_ops
    placement = Random(found.problem, 1, max(found.problem.num_ops, 1), 1).propose().device_of_op[0]
    devices = origin_devices(found.flat, found.built, placement, found.problem.device_names)
    out = folder / "placed_at_random"
    emit(found.source, devices, out, {})
    verify.BUDGET_SECONDS = 3600.0  # everything is compared, whatever else the machine does
    meta_graphs = sniff(out).proto.meta_graphs
    named = {n.device for m in meta_graphs for _, nodes in bodies(m.graph_def) for n in nodes}
    result.devices = len(named - {""})
    comparison = verified(found, out, placement)
    _take(result, entry, dataclasses.asdict(comparison), "at random")
    _require_same_interface(result, found.source.saved_model_dir, str(out))


def _take(result: Result, entry: Entry, verified: Mapping[str, Any], what: str) -> None:
    result.compared += len(verified["compared"])
    left = list(verified["not_compared"])
    result.left = tuple(dict.fromkeys((*result.left, *left)))
    unexpected = [n for n in left if not any(part in n for part in entry.not_compared)]
    wrong = [*verified.get("differing", ()), *unexpected]
    if not verified["compared"] or wrong:
        found = "; ".join(map(str, wrong[:3])) or "nothing was compared"
        result.outcome = f"{what}: {found}"


def _require_same_interface(result: Result, given: str, placed: str) -> None:
    """Tags, signatures, and what tf.saved_model.load makes are what they were."""
    if not given:
        return
    before, after = sniff(given).proto, sniff(placed).proto
    for old, new in zip(before.meta_graphs, after.meta_graphs, strict=True):
        for field in ("meta_info_def", "saver_def", "signature_def", "collection_def"):
            if getattr(old, field) != getattr(new, field):
                result.outcome = f"{field} changed"
        tags = list(old.meta_info_def.tags)
        config = tf.compat.v1.ConfigProto(allow_soft_placement=True, device_count={"CPU": 2})
        with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
            tf.compat.v1.saved_model.load(session, tags, placed)
        names = [_attributes(path, tags) for path in (given, placed)]
        is_lost = names[0] == [_NEEDS_ITS_DEVICES]
        if names[0] != names[1] and not is_lost:
            result.outcome = f"loaded attributes {names[0]} became {names[1]}"


def _attributes(path: str, tags: Sequence[str]) -> list[str]:
    """What tf.saved_model.load finds in a model, or why it can't load it."""
    try:
        loaded = tf.saved_model.load(path, tags)
    except tf.errors.OpError as error:
        return [type(error).__name__]
    return sorted(name for name in dir(loaded) if not name.startswith("_"))
