"""Figures of orders, by hand: `python -m tests.order NAME...`.

Each rewrites its table on the page `tfplace/docs/benchmarks/order.md`. `memory` measures and takes
three minutes on two idle cores, `recompute` twenty-five, `activations` one, `pipeline` seconds.
`peaks` measures memory alone, so that other work does not matter, and takes fifteen.
`pairs` runs those cells of its table that are missing, about 80 s each, and can be stopped and
begun again; `--models=nmt:num_layers=2 --clusters=k80x2` names some, `--again` makes cells of older
code anew.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from tests.order import activations, memory, pairs, peaks, pipeline, recompute
from tests.tables import rewrite_docs
from tests.tables.rewrite_docs import DOCS, ROOT, origin_of
from tfplace.output_paths import write_file

MADE = {"memory": memory.made, "activations": activations.made, "pipeline": pipeline.made}
MADE |= {"recompute": recompute.made, "peaks": peaks.made}
PAIRS = "pairs"


def main(arguments: Sequence[str] | None = None) -> None:
    """Makes what was asked for and rewrites the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.order", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join([*MADE, PAIRS])}")
    parser.add_argument("--models", default=";".join(pairs.MODELS), help="divided by ;")
    parser.add_argument("--clusters", default=",".join(pairs.CLUSTERS))
    parser.add_argument("--again", action="store_true")
    asked = parser.parse_args(arguments)
    unknown = sorted({*asked.names} - {*MADE, PAIRS})
    if unknown:
        parser.error(f"found {', '.join(unknown)}; wanted some of {', '.join([*MADE, PAIRS])}")
    for name in asked.names:
        if name == PAIRS:
            models, clusters = asked.models.split(";"), asked.clusters.split(",")
            pairs.run(models, clusters, asked.again, _kept(), lambda cells: _keep_pairs(cells))
        else:
            said = {"command": f"python -m tests.order {name}", **origin_of(ROOT)}
            _keep(name, {**said, **MADE[name]()})
    rewrite_docs.main(["--nodemo"])


def _keep_pairs(cells: Sequence[pairs.Cell]) -> None:
    said = {"command": "python -m tests.order pairs", **origin_of(ROOT)}
    _keep(PAIRS, {**said, **pairs.table_of(cells)})


def _keep(name: str, result: dict[str, Any]) -> None:
    text = json.dumps(result, indent=1)
    path = DOCS / "benchmarks" / "results" / f"order_{name}.json"
    write_file(str(path), f"{text}\n".encode(), overwrite=True)


def _kept() -> list[pairs.Cell]:
    path = DOCS / "benchmarks" / "results" / f"order_{PAIRS}.json"
    return list(json.loads(path.read_text(encoding="utf-8"))["cells"]) if path.exists() else []


if __name__ == "__main__":
    main()
