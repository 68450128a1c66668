"""A report as a run would leave it, of any small problem."""

from __future__ import annotations

import numpy as np

from graphs.problem import Problem
from rewrite.verify import Verified
from tfplace.choosing.baselines import Baseline
from tfplace.measurement.timing import Timing
from tfplace.report.explaining.explained import Explained, explain
from tfplace.report.report import Measured, Report
from tfplace.simulation.simulated import Best, simulated


def made_up(
    problem: Problem, placement: list[int], name: str = "model"
) -> tuple[Report, Explained]:
    """All text of the report is `name`, so that hostile text stands in every place."""
    explained = explain(simulated(problem, np.array(placement, dtype=np.int32)))
    best = Best.of(explained.placed)
    devices = [
        {"name": device, "type": kind, "memory_bytes": int(size)}
        for device, kind, size in zip(
            problem.device_names, problem.device_types, problem.device_memory_bytes, strict=True
        )
    ]
    timing = Timing(1.0, 0.9, 1.1, 20)
    report = Report(
        tfplace_version="0.1.0",
        seed=3,
        algorithm="auto",
        evaluator="auto",
        model={
            "path": name, "kind": "graph_def", "num_ops": problem.num_ops, "num_groups": 2,
            "step_origin": name, "guessed": [name], "units": [name],
        },
        cluster={
            "name": "hand",
            "communication": problem.communication,
            "devices": devices,
            "figures": "measured", "taught": {}, "forgotten": False,
        },
        costs={"source": "analytic", "covered_ops": 0.5, "wall_time_coverage": None,
               "notes": [name]},
        baselines={
            "given": Baseline(9.0, True, "", {}),
            "single": Baseline(8.0, True, "", {}),
            "etf": Baseline(None, False, f"{name} lacks memory", {}),
        },
        best=best,
        lower_bound_seconds=best.step_seconds / 2,
        search={
            "num_trials": 11, "num_infeasible": 1, "seconds": 2.0, "trials_per_second": 5.5,
            "beside": [{"name": "2 shards", "num_trials": 3, "seconds": 0.5}],
            "history": [(0, 0.1, 9.0), (4, 1.0, 7.0), (8, 1.5, 6.0), (10, 2.0, 6.0)],
            "stages": [{"name": "annealing", "num_trials": 6, "seconds": 1.2},
                       {"name": "post", "num_trials": 11, "seconds": 2.0}],
            "notes": [name], "interrupted": False,
        },
        measured=Measured(
            {"given": timing, "single": f"{name} ran out of memory", "placed": timing},
            "given", 1.5, (1.4, 1.6), "tf.function", "faster", 0.1, [name],
        ),
        verified=Verified(True, 1e-8, [name], [name]),
        verdict="placed",
        verdict_sentence=f"{name} is twice as fast",
        command=f"tfplace optimize {name}",
        output_dir=f"/tmp/{name}",
        advice={"sentences": [name]},
        waiting=explained.waiting(),
    )  # fmt: skip
    return report, explained
