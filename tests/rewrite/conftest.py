"""Models on disk, each written once for all tests that read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphs.building.flatten import flatten
from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from graphs.source_model import SourceModel
from rewrite.emit import emit
from tests.rewrite import models
from tests.rewrite.placements import Placed, alternating


def placed_model(source: SourceModel, folder: Path) -> Placed:
    flat = flatten(source.graph_def, source.feeds, source.fetches)
    wanted = alternating(flat)
    ignored = emit(source, wanted, folder / "out", {"report.json": b"{}"})
    return Placed(source, flat, wanted, str(folder / "out"), ignored)


@pytest.fixture(scope="session")
def tf2(tmp_path_factory) -> Placed:
    folder = tmp_path_factory.mktemp("tf2")
    return placed_model(load(models.write_tf2(folder / "in")), folder)


@pytest.fixture(scope="session")
def tf1(tmp_path_factory) -> Placed:
    folder = tmp_path_factory.mktemp("tf1")
    path = models.write_tf1(folder / "in")
    return placed_model(load(path, LoadOptions(mode="inference")), folder)


@pytest.fixture(scope="session")
def keras_layers(tmp_path_factory) -> Placed:
    folder = tmp_path_factory.mktemp("keras_layers")
    path = models.write_keras_layers(folder / "in")
    return placed_model(load(path, LoadOptions(mode="train")), folder)


@pytest.fixture(scope="session")
def graph_def(tmp_path_factory) -> Placed:
    folder = tmp_path_factory.mktemp("graph_def")
    path = models.write_graph_def(folder / "in.pb")
    return placed_model(load(path, LoadOptions(fetch=("loss:0", "train_op"))), folder)


@pytest.fixture(scope="session")
def meta_graph(tmp_path_factory) -> Placed:
    folder = tmp_path_factory.mktemp("meta_graph")
    return placed_model(load(models.write_meta_graph(folder)), folder)
