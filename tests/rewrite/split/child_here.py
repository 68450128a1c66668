"""The child processes that load models and run cases of ops, played by this process."""

from __future__ import annotations

from pathlib import Path

from graphs.host.scratch import temporary_directory
from graphs.loading.sniff import sniff
from rewrite.split.prove.ops.child import outcomes_of
from rewrite.split.prove.written.load_child import loaded_models, made_loadable
from rewrite.split.prove.written.prove_loads import BegunLoad


class Here:
    """An AskedChild that does here what it is asked for."""

    def __init__(self, module):
        del module
        self._answer = None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        pass

    def answer(self, seconds):
        return self._answer


class ChildHere(Here):
    """Loads what it is asked for.

    Attributes:
      asked: how many ops each model has that it was asked for; of the class, as children come anew.
    """

    asked: list[int] = []  # noqa: RUF012

    def ask(self, request, memory_bytes=None):
        scratch = Path(temporary_directory())
        made = made_loadable(request, scratch)
        self.asked.append(len(sniff(made.directory).proto.meta_graphs[0].graph_def.node))
        self._answer = loaded_models(request, made, scratch)


class CasesHere(Here):
    """Runs cases.

    Attributes:
      asked: the cases that it was asked for; of the class.
    """

    asked: list = []  # noqa: RUF012

    def ask(self, batches, memory_bytes=None):
        self.asked.extend(case for batch in batches for case in batch)
        self._answer = [outcomes_of(batch) for batch in batches]


def prove_loads(given, directory):
    """Loads a written model; where that fails, the model as it came, too."""
    with BegunLoad(given, directory, ["serve"]) as begun:
        return begun.proof()
