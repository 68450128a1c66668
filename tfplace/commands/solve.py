"""`tfplace solve PROBLEM.npz`."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING

from absl import flags

from graphs.errors import UsageError
from graphs.host.whole_file import write_whole
from tfplace.algorithms.table import ALGORITHMS, require_known
from tfplace.commands.from_flags import solve_options
from tfplace.commands.outcome import interrupted, text_output
from tfplace.interruption import interruptible
from tfplace.output_paths import require_files, writable
from tfplace.progress import Phases, progress_for

if TYPE_CHECKING:
    import numpy as np

    from graphs.op_graph import IntArray
    from graphs.problem import Problem

_ENDINGS = (".json", ".npz")


def run(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Searches a problem that any program may have written; TensorFlow is not needed."""
    _require_output(arguments[0], values)
    require_known(values.algorithm)
    if values.algorithm == "expert":
        known = ", ".join(each for each in ALGORITHMS if each != "expert")
        raise UsageError(
            "reading --algorithm=expert: a problem's file says nothing of an expert; wanted one "
            f"of auto, {known}"
        )
    with writable(values.placement):
        from graphs.problem_file import arrays_as_they_stand, problem_of
        from tfplace.choosing.solve import solve
        from tfplace.compilation.ahead import compiling_kind, kind_of
        from tfplace.report.solved import print_solved, solved_to_json

        progress = progress_for(values.verbosity)
        arrays = arrays_as_they_stand(arguments[0])
        problem, given = problem_of(arguments[0], arrays)
        if not (values.placement or "").endswith(".npz"):
            arrays = {}  # none of them is written
        with compiling_kind(kind_of(problem)) as compiling:
            compiling.wait(Phases(), progress)
        options = solve_options(arguments[0], values)
        with interruptible() as interruption, interruption.held():  # what is found is written
            solved = solve(problem, given, options, progress)
            if values.placement is not None:
                _write(values.placement, problem, solved.placed.device_of_op, arrays)
            with contextlib.suppress(KeyboardInterrupt):  # everything is written
                result = solved_to_json(solved, arguments[0], options, values.placement)
                if out := text_output(values, result):
                    print_solved(solved, arguments[0], options, out)
    if not solved.interrupted:
        return 0
    where = f"is in {values.placement}" if values.placement else "was not asked for: --placement"
    return interrupted(f"solving {arguments[0]!r}", solved.searched.result.num_trials, where)


def _require_output(problem: str, values: flags.FlagValues) -> None:
    """Raises UsageError or OutputError where --placement names no file that could be written."""
    path = values.placement
    if path is None:
        return
    if not path.endswith(_ENDINGS):
        raise UsageError(
            f"reading --placement={path}: found neither .json nor .npz at its end; wanted .json "
            "for {op: device}, or .npz for the problem with the placement in it"
        )
    require_files({"--placement": path}, [problem], values.overwrite)


def _write(
    path: str, problem: "Problem", device_of_op: "IntArray", arrays: "Mapping[str, np.ndarray]"
) -> None:
    """The placement as {op: device}, or, where there are any, the file's arrays with it."""
    import numpy as np

    names = problem.device_names
    ops = zip(problem.graph.op_names, device_of_op.tolist(), strict=True)

    def write(file: IO[bytes]) -> None:
        if arrays:
            placed = {**arrays, "placement": device_of_op}
            np.savez_compressed(file, allow_pickle=False, **placed)
        else:
            file.write(json.dumps({op: names[d] for op, d in ops}, indent=1).encode())

    write_whole(path, write)
