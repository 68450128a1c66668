"""Trains a model in several ways, turn by turn, so that all of them see the same machine."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from graphs.host.child import child_environment
from graphs.op_graph import FloatArray
from tests.rival.contestant import Contestant, RivalError
from tests.rival.models import MODELS
from tests.rival.result import Compared, Run
from tests.rival.ways import ONE, TFPLACE, WAYS
from tfplace.measurement.machine_load import LoadMeter

NUM_LOSSES = 5
"""Steps whose losses are compared; the first ones, which also build what has to be built."""
_LEAST_ROUNDS = 5
_TURN_SECONDS = 0.5


@dataclasses.dataclass(frozen=True)
class RivalOptions:
    """How to compare.

    Attributes:
      folder: where models and what tfplace made of them lie; what is there is not made again.
      optimize_flags: of `tfplace optimize`, beside --cluster=workers:2.
      warmup_steps: of each way, before the rounds: TensorFlow's executor takes some 90 steps
        until it knows which kernels are cheap.
      seconds: of all rounds of a model.
      ways: what is compared, `ways.ONE` among them.
    """

    folder: Path
    optimize_flags: Sequence[str] = ("--shards=auto", "--budget_seconds=40")
    warmup_steps: int = 100
    seconds: float = 20.0
    ways: Sequence[str] = WAYS


def compare(name: str, options: RivalOptions, say: Callable[[str], None]) -> Compared:
    """One model, trained in all ways; a way that fails does not stop the others."""
    failed: dict[str, str] = {}
    found, path = "", ""
    if TFPLACE in options.ways:
        say(f"{name}: tfplace optimize")
        try:
            found, path = _placed(name, options)
        except RivalError as error:
            failed[TFPLACE] = str(error)
    cores = sorted(os.sched_getaffinity(0))[:2]
    with contextlib.ExitStack() as ends:
        ways: dict[str, Contestant] = {}
        for way in options.ways:
            if way not in failed:
                ways[way] = ends.enter_context(Contestant(way, _cores(way, cores, path)))
        say(f"{name}: the first steps of {', '.join(ways)}")
        losses = {way: _begun(each, name, path, failed) for way, each in ways.items()}
        say(f"{name}: warming up, {options.warmup_steps} steps of each, side by side")
        _warm_up(ways, options.warmup_steps, failed)
        say(f"{name}: taking turns, {options.seconds:.0f} s")
        load = LoadMeter()
        seconds = _rounds(ways, options.seconds, failed, load)
    ran = {
        way: Run(losses[way], np.array(rounds)) for way, rounds in seconds.items() if rounds
    }  # fmt: skip
    return Compared(name, MODELS[name].says, ran, failed, found, load.background_share)


def _cores(way: str, cores: Sequence[int], path: str) -> Sequence[int]:
    """What a way runs on; where tfplace kept one worker, that has one core, too."""
    if way == ONE or (way == TFPLACE and not _needs_workers(path)):
        return cores[:1]
    return [] if way == TFPLACE else cores


def _needs_workers(path: str) -> bool:
    return bool(report_of(path)["loading_needs"] == "workers")


def report_of(path: str) -> Mapping[str, Any]:
    """The report of what `tfplace optimize` wrote."""
    report = Path(path, "assets.extra", "tfplace", "report.json")
    return dict(json.loads(report.read_bytes()))


def _placed(name: str, options: RivalOptions) -> tuple[str, str]:
    """What tfplace has found, in a sentence, and where it lies.

    Raises:
      RivalError: the model could not be saved or placed.
    """
    given, placed = options.folder / name, options.folder / f"{name}_placed"
    took = ""
    if not placed.exists():
        began = time.monotonic()
        if not given.exists():
            run_module(["tests.rival.save_model", name, str(given)])
        words = ["tfplace", "optimize", str(given), "--cluster=workers:2"]
        (options.folder / f"{name}.txt").write_text(
            run_module([*words, *options.optimize_flags, f"--output_dir={placed}"])
        )
        took = f", in {time.monotonic() - began:.0f} s"
    report = report_of(str(placed))
    return f"{report['verdict']}: {report['verdict_sentence']}{took}", str(placed)


def run_module(words: Sequence[str]) -> str:
    """What `python -m WORDS` prints; raises RivalError where it fails."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", *words],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise RivalError(f"`{' '.join(words[:2])}` ended with {done.returncode}: {last[0]}")
    return done.stdout


def _begun(each: Contestant, model: str, path: str, failed: dict[str, str]) -> list[float]:
    """The first losses of a way; they come one after the other, so that none lacks a core."""
    try:
        each.prepare(model, NUM_LOSSES, path)
        return each.losses()
    except RivalError as error:
        failed[each.way] = str(error)
        return []


def _warm_up(ways: Mapping[str, Contestant], num_steps: int, failed: dict[str, str]) -> None:
    running = [each for way, each in ways.items() if way not in failed and num_steps]
    for each in running:
        each.begin_steps(num_steps)
    for each in running:
        _turn(each, num_steps, failed, has_begun=True)


def _turn(
    each: Contestant, num_steps: int, failed: dict[str, str], has_begun: bool = False
) -> FloatArray | None:
    try:
        if not has_begun:
            each.begin_steps(num_steps)
        return each.seconds(num_steps)
    except RivalError as error:
        failed[each.way] = str(error)
        return None


def _rounds(
    ways: Mapping[str, Contestant], seconds: float, failed: dict[str, str], load: LoadMeter
) -> dict[str, list[float]]:
    """{way: its median step time in each round}; each round begins with another way."""
    medians: dict[str, list[float]] = {way: [] for way in ways if way not in failed}
    num_steps = dict.fromkeys(medians, 2)
    end = time.monotonic() + seconds
    num_rounds = 0
    while time.monotonic() < end or num_rounds < _LEAST_ROUNDS:
        load.read(_process_ids(ways))
        names = list(medians)
        for way in names[num_rounds % len(names) :] + names[: num_rounds % len(names)]:
            took = _turn(ways[way], 1 + num_steps[way], failed)
            if took is None:
                del medians[way]
                continue
            median = float(np.median(took[1:]))  # in the first one its data come back to a cache
            medians[way].append(median)
            num_steps[way] = max(2, math.ceil(_TURN_SECONDS / median))
        load.read(_process_ids(ways))
        num_rounds += 1
        if not medians:
            break
    return medians


def _process_ids(ways: Mapping[str, Contestant]) -> list[int]:
    """Of all ways' processes, and of those that they have started."""
    found = [os.getpid()]
    for each in ways.values():
        for process_id in each.process_ids:
            with contextlib.suppress(psutil.NoSuchProcess):
                children = psutil.Process(process_id).children(recursive=True)
                found += [process_id, *(child.pid for child in children)]
    return found
