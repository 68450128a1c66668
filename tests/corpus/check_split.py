"""One model of the corpus, split along its batch: op by op, its structure, and two whole steps."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from graphs.errors import FeedError, UsageError
from graphs.loading.feeds import feeds_of_opened
from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from graphs.source_model import SourceModel
from rewrite.split.prove.ops.child import outcomes_of
from rewrite.split.prove.ops.op_cases import op_cases
from rewrite.split.prove.runs.child import compare
from rewrite.split.prove.runs.compare_runs import request_of, table_start
from rewrite.split.prove.structure.check_resharding import prove_joints
from rewrite.split.prove.written.prove_written import prove_written
from rewrite.split.split_model import SplitModel
from tests.corpus.check_model import load_fields
from tests.corpus.entry import Entry
from tests.rewrite.split.run_step import split_model

BATCH = 7
"""Neither two nor three nor four shards divide it."""
NO_BATCH = "no batch of so many entries"


@dataclasses.dataclass(frozen=True)
class SplitResult:
    """What came of splitting a model.

    Attributes:
      mode: what its run is, "train" or "inference".
      num_compared: values of two steps that are the same in float64.
      why_not: why no step was run, or nothing was split.
      wrong: what differs; nothing may.
    """

    mode: str
    num_compared: int = 0
    why_not: str = ""
    wrong: Sequence[str] = ()


def check_split(entry: Entry, folder: Path, num_shards: int) -> SplitResult:
    """Makes a model, splits it and compares."""
    source = _loaded(entry, folder)
    try:
        split = split_model(source, num_shards)
    except UsageError as error:
        if NO_BATCH not in str(error):
            raise
        return SplitResult(source.mode, why_not=NO_BATCH)
    prove_written(split.source, split.step, split.outputs)
    wrong = _wrong_ops(split)
    joints = prove_joints(split.flat, split.decisions, split.step, num_shards)
    runs = compare(
        request_of(
            split.flat, split.decisions, split.step, joints.exact,
            feeds_of_opened(split.flat, split.properties, split.flat.feeds, 0),
            table_start(source),
        )
    )  # fmt: skip
    wrong += runs.differing
    return SplitResult(source.mode, len(runs.compared), runs.why_not, wrong)


def _loaded(entry: Entry, folder: Path) -> SourceModel:
    path = entry.build(folder)
    options = LoadOptions(**load_fields(entry))
    with contextlib.suppress(FeedError):  # its batch is of one size
        return load(path, dataclasses.replace(options, batch_size=BATCH))
    return load(path, options)


def _wrong_ops(split: SplitModel) -> list[str]:
    cases = op_cases(split.flat, split.decisions, split.num_shards)
    outcomes = outcomes_of(cases) if cases else []
    return [
        f"{case.name}: {outcome.differs}"
        for case, outcome in zip(cases, outcomes, strict=True)
        if outcome.differs
    ]
