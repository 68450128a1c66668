"""`tfplace graph NAME --output=FILE`."""

import os
from collections.abc import Sequence

from absl import flags

from graphs.errors import UsageError
from tfplace.commands.command_table import SIZES
from tfplace.commands.outcome import say_starting, text_output
from tfplace.output_paths import require_free, writable


def run(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Builds the graph and writes it in the format that the output's ending names."""
    from graphs import zoo

    name, options = zoo.parse(arguments[0])
    for flag in SIZES:
        value = values[flag.name].value
        if flag.name != "size" and value is not None:
            options[flag.name] = value
    size = options.pop("size", values.size)
    if not values.output:
        raise UsageError(
            f"writing the graph {name}: --output is missing; say --output={name}.pb for a "
            "GraphDef, .pbtxt for text, .meta for a MetaGraphDef, a folder for a SavedModel"
        )
    require_free(values.output, values.overwrite)
    with writable(values.output):
        say_starting(values.verbosity)
        built = zoo.build(name, size=size, **options)
        zoo.write(built, values.output, overwrite=values.overwrite)
    result = {
        "name": name,
        "output": os.path.abspath(values.output),
        "num_ops": len(built.graph.get_operations()),
        "num_parameters": built.num_parameters,
        "train_op": built.train_op,
        "loss": built.loss,
    }
    if text_output(values, result):
        print(
            f"wrote {values.output}: {name}, {result['num_ops']:,} ops, "
            f"{built.num_parameters:,} parameters; a run is {built.train_op}, loss {built.loss}"
        )
    return 0
