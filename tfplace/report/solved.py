"""What `tfplace solve` says of the placement that it found, as JSON and as text."""

from rich.console import Console

from graphs.counted import counted
from graphs.protos import Json
from tfplace.choosing.solve import Solved
from tfplace.preparing.options import OptimizeOptions
from tfplace.report.of_run import search_facts
from tfplace.report.report import SCHEMA_VERSION, bound_text, is_untried, plain
from tfplace.report.text import print_facts, table
from tfplace.report.text_report import print_prediction
from tfplace.simulation.simulated import Best, prediction_of
from tfplace.units_text import seconds_text
from tfplace.version import __version__


def solved_to_json(
    solved: Solved, path: str, options: OptimizeOptions, placement: str | None
) -> dict[str, Json]:
    """The contract's section 4, as far as there is no model: keys mean what they mean there."""
    problem, searched, bound = solved.problem, solved.searched, solved.lower_bound_seconds
    best = Best.of(solved.placed)
    devices = zip(
        problem.device_names,
        problem.device_types,
        problem.device_memory_bytes.tolist(),
        strict=True,
    )
    return plain(
        {
            "schema_version": SCHEMA_VERSION,
            "tfplace_version": __version__,
            "seed": options.seed,
            "algorithm": options.algorithm,
            "problem": {"path": path, "num_ops": problem.num_ops, "num_groups": problem.num_groups},
            "cluster": {
                "communication": problem.communication,
                "devices": [
                    {"name": name, "type": kind, "memory_bytes": memory}
                    for name, kind, memory in devices
                ],
            },
            "baselines": searched.reported_baselines(problem),
            "best": best,
            "lower_bound_seconds": bound,
            "gap": best.step_seconds / bound - 1.0 if bound else None,
            "search": {**search_facts(searched.result), "interrupted": solved.interrupted},
            "by_devices": searched.by_devices(problem, solved.choice.candidate),
            "verdict": solved.choice.verdict,
            "verdict_sentence": solved.choice.sentence,
            "placement": placement,
        }
    )


def print_solved(solved: Solved, path: str, options: OptimizeOptions, out: Console) -> None:
    """Prints what a person wants to know first, verdict last."""
    problem, result = solved.problem, solved.searched.result
    size = f"{counted(problem.num_ops, 'op')}, {counted(problem.num_devices, 'device')}"
    facts = [("problem", f"{path}, {size}")]
    if result.num_trials:
        trials = (
            f"{options.algorithm}: {counted(result.num_trials, 'trial')}, {result.seconds:.1f} s"
        )
        facts.append(("search", trials))
    print_facts(facts, out)
    times = table(("placement", "predicted"))
    for name, known in solved.searched.reported_baselines(problem).items():
        why_not = "not tried" if is_untried(known.reason) else "can't run"
        times.add_row(name, seconds_text(known.step_seconds) if known.feasible else why_not)
    if solved.lower_bound_seconds:
        times.add_row("lower bound", seconds_text(solved.lower_bound_seconds))
    out.print(times)
    print_prediction(prediction_of(solved.placed), out)
    worth = []
    if text := bound_text(solved.placed.outcome.step_seconds, solved.lower_bound_seconds):
        worth.append(("bound", text))
    worth.append(("verdict", f"{solved.choice.verdict}: {solved.choice.sentence}"))
    print_facts(worth, out)
