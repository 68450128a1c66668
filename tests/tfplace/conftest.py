"""A tiny training graph on disk, once for all tests of the commands."""

import pytest

from graphs import zoo


@pytest.fixture(scope="session")
def tiny_rnnlm(tmp_path_factory):
    """Path of a tiny RNNLM training graph with an expert's marks."""
    path = str(tmp_path_factory.mktemp("models") / "rnnlm.pb")
    zoo.write(zoo.build("rnnlm", size="tiny"), path)
    return path
