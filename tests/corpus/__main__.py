"""Runs the corpus by hand: `python -m tests.corpus [--heavy] [--as_user] [NAME ...]`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.corpus.check_model import Result, check_model

_MARK = "RESULT "


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--heavy", action="store_true", help="the heavy ones, too")
    parser.add_argument("--as_user", action="store_true", help="`tfplace optimize` each, too")
    parser.add_argument("--here", action="store_true", help="internal: in this process, as JSON")
    parser.add_argument("--json", help="write results there")
    arguments = parser.parse_args()
    if arguments.here:
        _run_here(arguments.names, arguments.as_user)
        return
    from tests.corpus.all_models import CORPUS

    names = arguments.names or [n for n, e in CORPUS.items() if arguments.heavy or not e.heavy]
    results = []
    for result in _results(names, arguments.as_user):
        results.append(result)
        print(
            f"{result['name']:32} {result['family']:20} {result['num_ops']:6} "
            f"{result['devices']} {result['compared']:4} {len(result['left']):3} "
            f"{result['seconds']:5.0f} s  {result['outcome'][:700]}",
            flush=True,
        )
        for left in result["left"][:4]:
            print(f"      not compared: {left[:300]}")
    as_wanted = sum(result["outcome"] in ("same", "refused") for result in results)
    print(f"{as_wanted} of {len(results)} as wanted")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=1))


def _results(names: list[str], as_user: bool) -> Iterator[dict[str, Any]]:
    """Runs them in one child, and in a new one after each crash."""
    from tests.corpus.all_models import CORPUS

    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    left = list(names)
    while left:
        command = [sys.executable, "-m", "tests.corpus", "--here", *left]
        command += ["--as_user"] if as_user else []
        with (
            tempfile.TemporaryFile("w+") as said,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=said, text=True, env=env
            ) as child,
        ):
            for line in child.stdout:
                if line.startswith(_MARK):
                    left.pop(0)
                    yield json.loads(line.removeprefix(_MARK))
            if child.wait() and left:
                said.seek(0)
                name = left.pop(0)
                nothing = Result(name, CORPUS[name].family, outcome=said.read()[-1000:])
                yield {**dataclasses.asdict(nothing), "seconds": 0}


def _run_here(names: list[str], as_user: bool) -> None:
    import tensorflow as tf

    from tests.corpus.all_models import CORPUS

    cpus = [tf.config.LogicalDeviceConfiguration() for _ in range(2)]
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], cpus)
    tf.config.set_soft_device_placement(True)
    for name in names:
        began = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="corpus_") as folder:
                result = check_model(CORPUS[name], Path(folder), as_user)
        except Exception as error:
            where = "".join(traceback.format_tb(error.__traceback__)[-2:])
            outcome = f"{type(error).__name__}: {error} {where}"
            result = Result(name, CORPUS[name].family, outcome=outcome)
        fields = {**dataclasses.asdict(result), "seconds": time.monotonic() - began}
        print(f"\n{_MARK}{json.dumps(fields)}", flush=True)


if __name__ == "__main__":
    main()
