"""`tfplace fidelity MODEL --cluster=... --placements=30`."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from graphs.host.scratch import scratch_directory
from tfplace.commands.from_flags import problem_options
from tfplace.commands.outcome import begin, text_output
from tfplace.output_paths import require_files, writable, write_file


def run(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Compares predicted with measured step times; writes the result and a picture if asked."""
    read = problem_options(arguments[0], values).files_read
    require_files({"--output": values.output, "--picture": values.picture}, read, values.overwrite)
    with writable(values.output, values.picture):
        begin(arguments[0], values)

        from tfplace.fidelity.first_round import prepared_as_known
        from tfplace.fidelity.result import fidelity_to_json, print_fidelity, scatter_png
        from tfplace.fidelity.study import FidelityConfig, study_fidelity
        from tfplace.progress import progress_for

        config = FidelityConfig(values.placements, values.rounds, values.trace, values.seed)
        progress = progress_for(values.verbosity)
        with progress.working():
            with scratch_directory() as scratch:
                options = problem_options(arguments[0], values)
                known = prepared_as_known(options, Path(scratch), values.seed, progress.say)
            study = study_fidelity(known.prepared, config, progress.say)
            study = dataclasses.replace(study, corrected=known.corrected)
        result = fidelity_to_json(study)
        if values.output is not None:
            text = json.dumps(result, indent=2, allow_nan=False) + "\n"
            write_file(values.output, text.encode(), values.overwrite)
        if values.picture is not None:
            write_file(values.picture, scatter_png(study), values.overwrite)
        if out := text_output(values, result):
            print_fidelity(study, out)
    return 0
