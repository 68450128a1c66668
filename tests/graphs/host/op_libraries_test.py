"""Op libraries are found in this process, named to children and loaded there."""

import os
import shutil
import subprocess

import pytest
import tensorflow as tf

from graphs.errors import ModelError
from graphs.host.asked_child import ask_child
from graphs.host.child import child_environment
from graphs.host.op_libraries import VARIABLE, load_op_libraries
from graphs.pricing.grappler_costs import run_grappler

MODULE = "tests.graphs.host.op_libraries_test"
SOURCE = """
void* TF_NewOpDefinitionBuilder(const char* name);
void TF_OpDefinitionBuilderAddInput(void* builder, const char* specification);
void TF_OpDefinitionBuilderAddOutput(void* builder, const char* specification);
void TF_RegisterOpDefinition(void* builder, void* status);
void* TF_NewStatus(void);
__attribute__((constructor)) static void begin(void) {
  void* op = TF_NewOpDefinitionBuilder("TfplaceTestOp");
  TF_OpDefinitionBuilderAddInput(op, "x: float");
  TF_OpDefinitionBuilderAddOutput(op, "y: float");
  TF_RegisterOpDefinition(op, TF_NewStatus());
}
"""


def main(parent):
    """What the child does: it says whether it knows an op."""
    from tensorflow.python.framework import op_def_registry

    parent.tell(op_def_registry.get(parent.request) is not None)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler here")
    folder = tmp_path_factory.mktemp("library")
    (folder / "op.c").write_text(SOURCE)
    flags = tf.sysconfig.get_link_flags()
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-w", folder / "op.c", "-o", folder / "op.so", *flags],
        check=True,
    )
    return folder / "op.so"


def test_what_this_process_has_loaded_children_load(library):
    assert str(library) not in child_environment()[VARIABLE]
    load_op_libraries(["", os.path.relpath(library)])
    load_op_libraries([str(library)])  # a second time is none
    assert child_environment()[VARIABLE].split(os.pathsep).count(str(library)) == 1
    assert ask_child(MODULE, "TfplaceTestOp", 60.0) is True
    assert ask_child(MODULE, "TfplaceNoSuchOp", 60.0) is False
    request = {"meta_graph": b"", "device": b"", "op_types": ["TfplaceTestOp", "TfplaceNoSuchOp"]}
    assert run_grappler(request)["unknown_op_types"] == ["TfplaceNoSuchOp"]


def test_extensions_that_are_not_of_tensorflow_are_none():
    import numpy.linalg  # noqa: F401 - it has loaded libraries

    named = child_environment()[VARIABLE].split(os.pathsep)
    assert not [path for path in named if "numpy" in path or "/tensorflow/" in path]


def test_what_can_not_be_loaded_is_one_error(tmp_path):
    with pytest.raises(ModelError, match=r"gone.so': .*[Nn]o such file.*--op_library"):
        load_op_libraries([str(tmp_path / "gone.so")])
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(ModelError, match=r"^loading the op library '.*text.so': .*; wanted"):
        load_op_libraries([str(tmp_path / "text.so")])
