"""The placement problems of a family's graphs on several clusters, prepared when first needed."""

from __future__ import annotations

import functools
import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path

from graphs import zoo
from graphs.problem import Problem
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import prepare


class FamilyInstances:
    """Every graph of a family on every cluster.

    Attributes:
      names: (graph, cluster) of each instance.
    """

    def __init__(self, graphs: Sequence[str], clusters: Sequence[str]) -> None:
        """Notes what there is; builds nothing yet."""
        self.names = list(itertools.product(graphs, clusters))
        self._problem = functools.cache(_prepared)

    def problem(self, index: int) -> Problem:
        """The problem of one instance; about two seconds when it is asked for the first time.

        Raises:
          ClusterError: no such cluster.
          ConstraintError: an op of the graph can't run on it.
        """
        return self._problem(*self.names[index])


def _prepared(spec: str, cluster: str) -> Problem:
    name, options = zoo.parse(spec)
    size = str(options.pop("size", "published"))
    with tempfile.TemporaryDirectory(prefix="tfplace_train_") as scratch:
        path = str(Path(scratch, f"{name}.pb"))
        zoo.write(zoo.build(name, size, **options), path)
        return prepare(ProblemOptions(path, cluster=cluster), trace=False).problem
