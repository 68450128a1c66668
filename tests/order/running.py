"""Commands of tfplace in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.tables.rewrite_docs import ROOT


def tfplace(
    *words: str, environment: Mapping[str, str] = types.MappingProxyType({})
) -> subprocess.CompletedProcess[str]:
    """Runs `tfplace WORDS`, whatever it ends with; `environment` has variables beside ours."""
    command = [sys.executable, "-P", "-m", "tfplace", *words, "--verbosity=-1"]
    env = {**os.environ, **environment}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=env)


def asked(*words: str) -> Any:
    """What `tfplace WORDS --format=json` prints."""
    done = tfplace(*words, "--format=json")
    if not done.stdout:
        raise RuntimeError(f"running tfplace {' '.join(words)}: {done.stderr}")
    return json.loads(done.stdout)


def graph(folder: Path, name: str, *sizes: str) -> str:
    """The path of a benchmark graph, which is written there."""
    path = folder / f"{name}.pb"
    asked("graph", name, *sizes, f"--output={path}")
    return str(path)
