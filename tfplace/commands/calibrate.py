"""`tfplace calibrate --cluster=workers:2 --output=FILE.json`."""

import json
from collections.abc import Sequence

from absl import flags

from tfplace.commands.outcome import require_output, say_starting, text_output


def run(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Measures the cluster, writes its file, and says how good the fits are."""
    wanted = "FILE.json, which --cluster then takes"
    require_output(values.output, ".json", "writing the calibrated cluster", wanted)
    from graphs.clusters.cluster_file import cluster_to_json
    from graphs.clusters.discovery import find_cluster
    from tfplace.output_paths import require_files, writable, write_file
    from tfplace.progress import progress_for
    from tfplace.report.text_calibration import calibration_to_json, print_calibration

    require_files({"--output": values.output}, [values.cluster], values.overwrite)
    say_starting(values.verbosity)
    cluster = find_cluster(values.cluster)
    progress = progress_for(values.verbosity)
    with writable(values.output), progress.working(values.budget_seconds):
        # Late: it brings all of TensorFlow, and what is wrong is said before.
        from tfplace.measurement.calibration.calibrating import calibrate

        calibration = calibrate(cluster, values.budget_seconds, tell=progress.say)
    text = json.dumps(cluster_to_json(calibration.cluster), indent=2) + "\n"
    write_file(values.output, text.encode(), values.overwrite)
    if out := text_output(values, calibration_to_json(calibration, values.output)):
        print_calibration(calibration, values.output, out)
    return 0
