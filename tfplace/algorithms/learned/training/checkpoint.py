"""Checkpoints of trained policies: one .npz without pickles, read strictly."""

import dataclasses
import io
import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from graphs.errors import CheckpointError, UsageError
from graphs.host.did_you_mean import did_you_mean, did_you_mean_file
from graphs.host.whole_file import is_device
from graphs.problem import Problem
from graphs.protos import JsonObject
from tfplace.algorithms.learned.config import PlacetoConfig
from tfplace.output_paths import write_file
from tfplace.search.kept.snapshot import Snapshot

KIND = "tfplace placeto policy"
VERSION = 1
SHIPPED = Path(__file__).resolve().parents[1] / "policies" / "shipped"

# What a file may ask for, so that a damaged or hostile one can't fill the memory. The arrays
# together may have a thousand times the bytes of a policy of the usual size.
MAX_BYTES = 64 * 2**20
MAX_UNITS = 1024
MAX_ROUNDS = 64


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What fixes the shapes of the weights, and the number of groups it was trained with."""

    group_width: int  # features of a group
    device_width: int  # features of a device
    units: int  # as in PlacetoConfig
    rounds: int  # as in PlacetoConfig
    max_groups: int  # as in PlacetoConfig.grouping


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What a training was asked for; who goes on with it has to ask for the same.

    Attributes:
      family: a name of tfplace.algorithms.learned.training.families.
      clusters: names of the clusters it was trained on.
      num_graphs: training and held-out ones.
      seed: of graphs, weights and choices.
    """

    family: str
    clusters: tuple[str, ...]
    num_graphs: int
    seed: int


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A policy between two episodes of its training.

    Attributes:
      recipe: what was asked of the training.
      sizes: of the policy's weights.
      episodes: trained so far.
      seconds: of wall time trained so far.
      held_out: figures on the held-out graphs after training, {} where it was not judged.
      arrays: policy/i and optimizer/i (weights), rng, num_episodes, returns/i (f8[E, G], the
        baseline of training instance i).
    """

    recipe: Recipe
    sizes: Sizes
    episodes: int
    seconds: float
    held_out: JsonObject
    arrays: Snapshot


def write_checkpoint(path: str, checkpoint: Checkpoint) -> None:
    """Writes it over what was there, whole or not at all; OutputError: it can't be written."""
    facts = {
        "kind": KIND,
        "version": VERSION,
        "recipe": dataclasses.asdict(checkpoint.recipe),
        "sizes": dataclasses.asdict(checkpoint.sizes),
        "episodes": checkpoint.episodes,
        "seconds": checkpoint.seconds,
        "held_out": dict(checkpoint.held_out),
    }
    content = io.BytesIO()
    text = np.array(json.dumps(facts, allow_nan=False))
    np.savez_compressed(content, allow_pickle=False, facts=text, **checkpoint.arrays)  # type: ignore[arg-type]
    write_file(path, content.getvalue(), overwrite=True)


def read_checkpoint(name: str) -> Checkpoint:
    """Reads a checkpoint and makes sure that this version's policy takes its weights.

    Args:
      name: a path; or the name of a shipped one: "rnnlm" (where no such file exists) or
        "shipped:rnnlm".

    Raises:
      CheckpointError: it is missing, damaged, or not ours.
    """
    arrays = _arrays(name, _path_of(name))
    try:
        facts = json.loads(str(arrays.pop("facts")))
        if facts["kind"] != KIND:
            raise ValueError(f"it says it is {facts['kind']!r}")
        if facts["version"] != VERSION:
            raise ValueError(f"it has format version {facts['version']}, wanted {VERSION}")
        recipe = dict(facts["recipe"])
        checkpoint = Checkpoint(
            Recipe(**{**recipe, "clusters": tuple(recipe["clusters"])}),
            Sizes(**facts["sizes"]),
            int(facts["episodes"]),
            float(facts["seconds"]),
            dict(facts["held_out"]),
            arrays,
        )
        _require_usable(checkpoint)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        what = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise _error(name, what or type(error).__name__) from None
    return checkpoint


def shipped_names() -> tuple[str, ...]:
    """The families for which a trained policy ships with tfplace."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.npz")))


def _path_of(name: str) -> Path:
    if Path(name).exists():
        return Path(name)
    stem = name.removeprefix("shipped:")
    if stem in shipped_names():
        return SHIPPED / f"{stem}.npz"
    meant = did_you_mean(stem, shipped_names()) or did_you_mean_file(name)
    raise CheckpointError(
        f"reading the policy {name!r}: there is no such file, and none of that name ships with "
        f"tfplace{meant} (shipped: {', '.join(shipped_names())}); "
        "give a checkpoint of `tfplace train`"
    )


def _arrays(name: str, path: Path) -> Snapshot:
    """All arrays of the file; nothing in it is run, nothing larger than MAX_BYTES is unpacked."""
    try:
        if is_device(path):  # in which zipfile never comes to an end
            raise ValueError("it is a device")
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > MAX_BYTES:
                raise ValueError(f"it unpacks to more than {MAX_BYTES:,} bytes")
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    except OSError as error:
        raise _error(name, error.strerror or str(error)) from None
    except Exception as error:  # zip and numpy raise many kinds at bytes that aren't theirs
        raise _error(name, str(error) or type(error).__name__) from None


def _require_usable(checkpoint: Checkpoint) -> None:
    """Raises ValueError where a number is out of range or the policy would not take it."""
    sizes, arrays = checkpoint.sizes, checkpoint.arrays
    limits = {"units": MAX_UNITS, "rounds": MAX_ROUNDS, "max_groups": 100_000}
    for name, limit in limits.items():
        value = getattr(sizes, name)
        if type(value) is not int or not 1 <= value <= limit:
            raise ValueError(f"{name} is {value!r}, wanted 1 to {limit:,}")
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"the array {name} has values that are no numbers")
    from tfplace.algorithms.learned.policies.graph_embedding import GraphEmbedding
    from tfplace.algorithms.learned.policies.placement_features import DEVICE_WIDTH, GROUP_WIDTH
    from tfplace.search.kept import snapshot

    widths = sizes.group_width, sizes.device_width
    if widths != (GROUP_WIDTH, DEVICE_WIDTH):
        raise ValueError(
            f"it was trained with {widths} features, this tfplace has "
            f"{(GROUP_WIDTH, DEVICE_WIDTH)}; train again"
        )
    policy = GraphEmbedding(widths, sizes.units, sizes.rounds, seed=0)
    snapshot.into_variables("policy", policy.variables, arrays)


def _error(name: str, what: str) -> CheckpointError:
    return CheckpointError(
        f"reading the policy {name!r}: {what}; wanted a checkpoint of `tfplace train`; train "
        "one, or check the path"
    )


if TYPE_CHECKING:
    from tfplace.algorithms.learned.placeto import Placeto

ALGORITHM = "placeto"


def algorithm_with_policy(algorithm: str, policy: str | None) -> tuple[str, Checkpoint | None]:
    """The algorithm that runs, and what it starts from; "auto" with a policy is Placeto.

    Raises:
      CheckpointError: the checkpoint is missing, damaged or not ours.
      UsageError: the algorithm has no policy of that kind.
    """
    if policy is None:
        return algorithm, None
    if algorithm not in ("auto", ALGORITHM):
        raise UsageError(
            f"reading --policy={policy}: a trained policy is one of {ALGORITHM}'s, found "
            f"--algorithm={algorithm}; leave one of the two flags out"
        )
    return ALGORITHM, read_checkpoint(policy)


def placeto_from(checkpoint: Checkpoint, problem: Problem, seed: int) -> "Placeto":
    """Placeto with a checkpoint's weights.

    Its first episode is the trained policy alone; then it goes on learning at the last, low rate.
    """
    from tfplace.algorithms.learned.placeto import Placeto

    default, sizes = PlacetoConfig(), checkpoint.sizes
    config = dataclasses.replace(
        default,
        units=sizes.units,
        rounds=sizes.rounds,
        grouping=dataclasses.replace(default.grouping, max_groups=sizes.max_groups),
        optimizer=dataclasses.replace(default.optimizer, learning_rate=default.last_learning_rate),
    )
    placeto = Placeto(problem, seed, config)
    placeto.set_weights(checkpoint.arrays)
    return placeto
