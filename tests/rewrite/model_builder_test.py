"""What makes SavedModels is a process without oneDNN, as other tests have it not."""

import subprocess

import psutil

from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from graphs.loading.sniff import sniff
from rewrite import model_builder
from rewrite.model_builder import ModelBuilder
from tests.rewrite.models import write_graph_def


def test_a_model_is_made_by_a_process_with_variables_of_its_own(
    tmp_path, monkeypatch, own_variables_of_builder
):
    monkeypatch.setattr(model_builder, "_ENVIRONMENT", own_variables_of_builder)
    path = write_graph_def(tmp_path / "given.pb")
    source = load(path, LoadOptions(fetch=("loss:0",)))
    (tmp_path / "folder").mkdir()
    with ModelBuilder(path) as builder:
        process = builder._child._child.process
        assert isinstance(process, subprocess.Popen)
        variables = psutil.Process(process.pid).environ()
        while not variables:  # just after its exec Linux shows a process without any
            variables = psutil.Process(process.pid).environ()
        assert variables["TF_ENABLE_ONEDNN_OPTS"] == "0"
        builder.begin(source, tmp_path / "folder")
        built = builder.built()
    (made,) = sniff(built.directory).proto.meta_graphs
    assert {node.name for node in source.graph_def.node} <= {n.name for n in made.graph_def.node}
