"""Given and emitted models run on the workers that the model was placed on."""

import numpy as np

from rewrite.emit import emit
from tests.rewrite import models
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import prepare
from tfplace.proving.proof import verified


def test_tf2_is_loaded_on_worker_processes(tmp_path):
    path = models.write_keras3_step(tmp_path / "in")
    prepared = prepare(ProblemOptions(path, cluster="workers:2"), trace=False)
    graph = prepared.problem.graph
    placement = np.arange(prepared.problem.num_ops) % 2
    for op, group in enumerate(graph.colocation_group.tolist()):
        placement[op] = group % 2 if group >= 0 else placement[op]
    placement = placement.astype(np.int32)
    devices = prepared.devices_to_write(placement, keep_devices=False)
    emit(prepared.source, devices, tmp_path / "out", {})

    result = verified(prepared, tmp_path / "out", placement)

    assert (result.run, result.not_compared, result.differing) == ("equal", (), ())
    assert any("variable" in name for name in result.compared)
