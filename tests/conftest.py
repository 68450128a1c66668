"""For all tests: costs are kept in a folder of the session's own, never in the user's cache."""

import os

import pytest


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
