"""Small inputs in the three planners' formats, as problems."""

import json

import numpy as np
import pytest

from graphs.problem_file import read_problem
from tests.reference_simulator import reference_run
from tests.tables.planner_inputs import main

NODES = [
    {"id": i, "supportedOnFpga": i > 3, "cpuLatency": cpu, "fpgaLatency": 1, "size": 6.0}
    for i, cpu in ((7, 50), (5, 50), (3, 2))
]  # fmt: skip
PARTITIONING = {
    "maxSizePerFPGA": 10.0, "maxFPGAs": 2, "maxCPUs": 1, "nodes": NODES,
    "edges": [{"sourceId": 7, "destId": 5, "cost": 0.5},
              {"sourceId": 5, "destId": 3, "cost": 0.25}],
}  # fmt: skip
SPLIT = {"cpus": [{"nodes": [3]}], "fpgas": [{"nodes": [7]}, {"nodes": [5]}]}
PIPER = {
    "maxDevices": 2, "maxMemoryPerDevice": 1e9, "bandwidth": 1e6,
    "nodes": [
        {"id": i, "TMPCs": {"1": [{"id": "vanilla", "timePerSample": 2.0, "memoryUsageB": 5.0}]}}
        for i in (0, 1)
    ],
    "edges": [{"sourceId": 0, "destId": 1, "communicationCost": 1000.0}],
}  # fmt: skip
FIGURES = (
    "forward_compute_time=1.0, backward_compute_time=2.0, activation_size={}, parameter_size=8.0"
)
DAPPLE = (
    f"a -- Linear(3, 4) -- {FIGURES.format('100.0')}\n"
    f"b -- LSTM -- {FIGURES.format('[50.0; 20.0]')}\n"
    "\ta -- b"
)


def converted(tmp_path, content, *words):
    path = tmp_path / "input"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    output = str(tmp_path / "p.npz")
    assert main([str(path), f"--output={output}", *words]) == 0
    return read_problem(output)


def makespan(problem, placement):
    return reference_run(problem, placement)[0]


def test_a_pipeline_reaches_the_maximal_load(tmp_path):
    (tmp_path / "split").write_text(json.dumps(SPLIT))
    steps = []
    for samples in (1, 4, 64):
        problem, given = converted(
            tmp_path, PARTITIONING, f"--samples={samples}", f"--split={tmp_path}/split"
        )
        steps.append(makespan(problem, given) / samples)
    assert steps[0] == pytest.approx(1e-3 + 0.5e-3 + 1e-3 + 0.25e-3 + 2e-3)
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] == pytest.approx(2e-3, rel=0.03)  # the CPU's load
    assert given.reshape(64, 3).tolist() == [[1, 2, 0]] * 64


def test_copies_of_a_layer_share_a_device_and_its_weights(tmp_path):
    problem, _ = converted(tmp_path, PARTITIONING, "--samples=2")
    assert problem.graph.op_persistent_bytes.tolist() == [6, 6, 6, 0, 0, 0]
    assert problem.graph.colocation_group.tolist() == [0, 1, 2, 0, 1, 2]
    assert np.isinf(problem.op_seconds[2]).tolist() == [False, True, True]
    assert problem.graph.use_op.tolist() == [1, 2, 4, 5]


def test_piper(tmp_path):
    problem, given = converted(tmp_path, PIPER, "--samples=3")
    assert problem.device_names == ("GPU:0", "GPU:1") and given.tolist() == [0] * 6
    assert makespan(problem, np.array([0, 1] * 3)) == pytest.approx(4 * 2e-3 + 1e-3)


def test_a_profile_of_dapple_goes_forward_and_back(tmp_path):
    words = ("--samples=1", "--devices=2", "--bytes_per_second=100000")
    problem, _ = converted(tmp_path, DAPPLE, *words)
    names = problem.graph.op_names
    assert sorted(names) == [f"{x}/sample_0" for x in ("a/backward", "a", "b/backward", "b")]
    assert makespan(problem, np.zeros(4, int)) == pytest.approx(6e-3)
    apart = np.array([name.startswith("b") for name in names]).astype(int)
    assert makespan(problem, apart) == pytest.approx(8e-3)  # 100 bytes there and back
    assert sorted(problem.graph.tensor_alloc_bytes.tolist()) == [0, 0, 70, 100]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "JSONDecodeError"),
        ("[]", "wanted a JSON of dnn-partitioning"),
        ({"nodes": []}, "KeyError"),
        ({**PARTITIONING, "nodes": [{}]}, "KeyError"),
        (PARTITIONING | {"edges": [{"sourceId": 7, "destId": 5, "cost": 1},
                                   {"sourceId": 5, "destId": 7, "cost": 1}]}, "it has a cycle"),
        (PARTITIONING | {"edges": [{"sourceId": 7, "destId": 9, "cost": 1}]}, "7 -> 9 is of no"),
        ("a -- x -- forward_compute_time=?\n", "KeyError"),
    ],
)  # fmt: skip
def test_what_is_no_planners_input(content, words, tmp_path, capsys):
    path = tmp_path / "input"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    assert main([str(path), f"--output={tmp_path}/p.npz"]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1
    assert not (tmp_path / "p.npz").exists()
