"""For all tests: a cost cache of the session's own, loggers as no command has set them, and one
process that all children which need TensorFlow are forked of."""

import functools
import logging
import os

import numba
import pytest

from graphs.host import child
from graphs.host.compiled import cache_directory
from graphs.host.fork_server import ForkServer
from rewrite import model_builder

# Compiled code is kept from session to session, where tfplace keeps it; child processes inherit it.
os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_directory()))
numba.config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"]  # it was imported just now
# A command sets it. Where it differs from that of the process that forks, no child is forked.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
DAY = 24 * 3600.0


def pytest_configure(config):
    """GPUs are for `pytest -m gpu`: each process would take all of their memory."""
    if config.option.markexpr != "gpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"


@pytest.fixture(scope="session", autouse=True)
def _own_cost_cache(tmp_path_factory):
    """Child processes inherit it."""
    before = os.environ.get("TFPLACE_CACHE_DIR")
    os.environ["TFPLACE_CACHE_DIR"] = str(tmp_path_factory.mktemp("cost_cache"))
    yield
    if before is None:
        del os.environ["TFPLACE_CACHE_DIR"]
    else:
        os.environ["TFPLACE_CACHE_DIR"] = before


@pytest.fixture(scope="session", autouse=True)
def own_variables_of_builder():
    """The variables of what makes SavedModels, which no test has but the one that asks for them.

    Importing TensorFlow takes a child 5 s of a core: one process does it for all tests, however
    long it is asked for no child, and forks those that build models, too.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(child, "ForkServer", functools.partial(ForkServer, idle_seconds=DAY))
        own = model_builder._ENVIRONMENT
        patch.setattr(model_builder, "_ENVIRONMENT", {})
        yield own


@pytest.fixture(autouse=True)
def _loggers_as_imported():
    """A command run by a test or a fixture sets them by its --verbosity: no test must feel it."""
    for package in ("graphs", "rewrite", "tfplace"):
        logger = logging.getLogger(package)
        logger.setLevel(logging.NOTSET)
        logger.handlers = []
