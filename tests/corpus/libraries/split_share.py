"""Of the seconds of a step's ops that work on its batch, the share that is split in two."""

import json
import sys
from collections import Counter

from graphs.loading.load_options import LoadOptions
from rewrite.split.decision import Split, StayWhole
from rewrite.split.summary import below_whole
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import prepare


def split_share(path):
    """{"split": share, "whole": what stays whole, most seconds first}; updates are left aside."""
    options = ProblemOptions(path, LoadOptions(), "workers:2")
    priced = prepare(options, trace=False)
    graph = priced.problem.graph
    fastest = priced.problem.op_seconds.min(axis=1)
    seconds_of = dict(zip(graph.op_names, fastest.tolist(), strict=True))
    split = priced.to_split.split(2)
    behind = below_whole(split.flat, split.decisions)
    in_shards, whole = 0.0, Counter()
    for node in split.flat.graph_def.node:
        answer = split.decisions.answer_of_op[node.name]
        seconds = seconds_of.get(node.name, 0.0)
        if isinstance(answer, Split):
            in_shards += seconds
        elif isinstance(answer, StayWhole) and answer.reason:
            whole[f"{node.op}: {answer.reason}"] += seconds
        elif node.name in behind:
            whole["behind these"] += seconds
    total = in_shards + whole.total() or 1.0
    most = [f"{each} ({part / total:.0%})" for each, part in whole.most_common(6)]
    return {"split": in_shards / total, "whole": most, "batch": split.decisions.batch}


if __name__ == "__main__":
    print(json.dumps(split_share(sys.argv[1])))
