"""For all tests: a cost cache of the session's own, and loggers as no command has set them."""

import logging
import os

import pytest

from graphs.host.compiled import cache_directory

# Compiled code is kept from session to session, where tfplace keeps it; child processes inherit it.
os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_directory()))


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


@pytest.fixture(autouse=True)
def _loggers_as_imported():
    """A command run by a test or a fixture sets them by its --verbosity: no test must feel it."""
    for package in ("graphs", "rewrite", "tfplace"):
        logger = logging.getLogger(package)
        logger.setLevel(logging.NOTSET)
        logger.handlers = []
