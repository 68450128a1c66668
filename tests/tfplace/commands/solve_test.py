"""`tfplace solve`: what it finds is what an independent simulator says of it."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from graphs import problem_file
from graphs.problem_file import read_archive, read_problem, write_problem
from tests.builders import Machine, Op, build_problem, colocated_pair, random_problem, two_towers
from tests.heap_simulator import heap_makespan
from tests.reference_simulator import reference_run
from tfplace.cli import main
from tfplace.commands import solve as solve_command

ROOT = Path(__file__).parents[3]
FEW = ["--max_trials=40", "--budget_seconds=0.5", "--verbosity=-1"]


def layered_problem(num_ops, seed, num_devices=4):
    """A random graph of any size: each op uses up to two of the 50 before it."""
    rng = np.random.default_rng(seed)
    ops = []
    for index in range(num_ops):
        used = np.unique(
            rng.integers(max(0, index - 50), index, rng.integers(0, 3)) if index else []
        )
        ops.append(
            Op(
                f"op{index}",
                float(rng.exponential(1e-3)),
                [f"op{int(i)}:0" for i in used],
                (int(rng.integers(0, 1 << 20)),),
            )
        )
    machine = Machine(num_devices, 1e-5, 1e10, memory=1 << 50, types=["GPU"] * num_devices)
    return build_problem(ops, machine)


def solved(problem, tmp_path, capsys, *words):
    """The JSON, and the problem and placement that were written."""
    path, best = str(tmp_path / "problem.npz"), str(tmp_path / "best.npz")
    write_problem(path, problem, np.zeros(problem.num_ops, dtype=np.int32))
    words = [*FEW, "--format=json", f"--placement={best}", "--overwrite", *words]
    assert main(["solve", path, *words]) == 0
    return json.loads(capsys.readouterr().out), *read_problem(best)


def test_slots_without_end_take_no_memory(tmp_path, capsys):
    problem = build_problem(
        [Op(f"op{index}", 1.0) for index in range(5)], Machine(2, slots=2**31 - 1)
    )
    found, _, _ = solved(problem, tmp_path, capsys)
    assert found["best"]["step_seconds"] == 1.0


@pytest.mark.parametrize("seed", range(8))
def test_the_reference_simulator_confirms_a_solution(seed, tmp_path, capsys):
    problem = random_problem(np.random.default_rng(seed), 30)
    found, same, placement = solved(problem, tmp_path, capsys)
    makespan, peaks = reference_run(same, placement)
    assert found["best"]["step_seconds"] == pytest.approx(makespan, rel=1e-9)
    assert list(found["best"]["peak_bytes"].values()) == peaks
    baselines = [row["step_seconds"] or np.inf for row in found["baselines"].values()]
    assert makespan <= min(baselines) * 1.01
    assert found["lower_bound_seconds"] <= makespan


def test_only_the_placement_is_replaced_in_a_file_of_another_program(tmp_path, capsys):
    path, best = tmp_path / "p.npz", tmp_path / "best.npz"
    write_problem(str(path), two_towers(), np.zeros(9, dtype=np.int32))
    before = dict(np.load(path))
    last = len(before["tensor_bytes"]) - 1  # its tensors come the other way round
    for name in before:
        if name.startswith("tensor_"):
            before[name] = before[name][::-1]
    before["use_tensor"] = last - before["use_tensor"].astype(np.int64)
    del before["tensor_shape"]
    np.savez(path, **before)
    assert main(["solve", str(path), *FEW, f"--placement={best}"]) == 0
    after = dict(np.load(best))
    assert set(after) == set(before)
    for name in set(before) - {"placement"}:
        assert np.array_equal(after[name], before[name]), name


def test_the_problem_is_read_once(tmp_path, monkeypatch, capsys):
    reads = []

    def counted(path, names, doing):
        reads.append(path)
        return read_archive(path, names, doing)

    monkeypatch.setattr(problem_file, "read_archive", counted)
    path = str(tmp_path / "p.npz")
    write_problem(path, two_towers(), np.zeros(9, dtype=np.int32))
    assert main(["solve", path, *FEW, f"--placement={tmp_path / 'best.npz'}"]) == 0
    assert reads == [path]


@pytest.mark.parametrize("algorithm", ["etf", "metis", "random", "local_search", "given", "heft"])
def test_every_algorithm_is_taken(algorithm, tmp_path, capsys):
    found, same, placement = solved(
        two_towers(machine=Machine(3, 0.1)), tmp_path, capsys, f"--algorithm={algorithm}"
    )
    assert found["algorithm"] == algorithm
    assert found["best"]["step_seconds"] == pytest.approx(heap_makespan(same, placement))
    assert {"given", "single", "topological", "etf", "local_search"} == set(found["baselines"])
    assert found["search"]["num_trials"] and found["search"]["history"]


def test_a_placement_file_for_people(tmp_path, capsys):
    path, out = str(tmp_path / "p.npz"), tmp_path / "best.json"
    write_problem(path, colocated_pair(), np.zeros(3, dtype=np.int32))
    assert main(["solve", path, *FEW, f"--placement={out}"]) == 0
    printed = capsys.readouterr().out
    assert "lower bound" in printed and "verdict" in printed
    placed = json.loads(out.read_text())
    assert set(placed) == {"variable", "gradient", "update"}
    assert placed["variable"] == placed["update"]
    assert main(["solve", path, *FEW, f"--placement={out}"]) == 2
    assert "exists already" in capsys.readouterr().err


def test_a_given_placement_that_can_not_run_is_only_a_baseline(tmp_path, capsys):
    ops = [Op("a", (1.0, np.inf)), Op("b", (np.inf, 1.0), ("a:0",)), Op("c", pin=1)]
    found, _, placement = solved(build_problem(ops), tmp_path, capsys)
    assert not found["baselines"]["given"]["feasible"]
    assert "no kernel" in found["baselines"]["given"]["reason"] or "pinned" in str(found)
    assert placement.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("ops", "words", "status", "line"),
    [
        ([Op("a", persistent=10**10)], [], 3, "found none"),
        ([Op("a", np.inf)], [], 4, "'a' has no device"),
        ([Op("a", pin=0, colocation=0), Op("b", pin=1, colocation=0)], [], 4, "pinned_device"),
        ([Op("a")], ["--algorithm=expert"], 1, "nothing of an expert"),
        ([Op("a")], ["--algorithm=eft"], 1, "did you mean"),
        ([Op("a")], ["--placement=x.txt"], 1, "neither .json nor .npz"),
        ([Op("a")], ["--placement=/proc/x.json"], 2, "writing /proc/x.json"),
    ],
)
def test_what_can_not_be_solved_says_so(ops, words, status, line, tmp_path, capsys):
    path = str(tmp_path / "p.npz")
    write_problem(path, build_problem(ops), np.zeros(len(ops), dtype=np.int32))
    assert main(["solve", path, *FEW, *words]) == status
    captured = capsys.readouterr()
    assert line in captured.err and captured.err.count("\n") == 1 and not captured.out


@pytest.mark.parametrize("signals", [1, 2])
@pytest.mark.parametrize("late", ["write_whole", "text_output"])
def test_late_signals_lose_nothing_and_say_nothing_untrue(
    late, signals, tmp_path, monkeypatch, capsys
):
    work = getattr(solve_command, late)

    def interrupted(*arguments):
        found = work(*arguments)
        for _ in range(signals):
            signal.raise_signal(signal.SIGINT)
        return found

    monkeypatch.setattr(solve_command, late, interrupted)
    write_problem(tmp_path / "p.npz", two_towers(), np.zeros(9, dtype=np.int32))
    out = tmp_path / "best.json"
    status = main(["solve", f"{tmp_path}/p.npz", *FEW, f"--placement={out}"])
    gives_up = (late, signals) == ("write_whole", 2)
    assert status == (5 if gives_up else 0) and json.loads(out.read_text())
    said = "tfplace: error: interrupted; nothing is left half-written\n" if gives_up else ""
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("seed", range(20))
def test_both_simulators_of_the_tests_agree(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 25)
    placement = rng.integers(0, problem.num_devices, problem.num_ops)
    assert heap_makespan(problem, placement) == reference_run(problem, placement)[0]


def test_it_needs_no_tensorflow(tmp_path):
    path = str(tmp_path / "p.npz")
    write_problem(path, two_towers(), np.zeros(9, dtype=np.int32))
    code = (
        "import sys; from tfplace.cli import main;"
        f"status = main(['solve', {path!r}, '--budget_seconds=0.1', '--verbosity=-1']);"
        "sys.exit(status or 'tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_a_problem_of_2000_ops(tmp_path, capsys):
    found, same, placement = solved(layered_problem(2000, 1), tmp_path, capsys)
    assert found["best"]["step_seconds"] == pytest.approx(heap_makespan(same, placement), rel=1e-9)


@pytest.mark.large
@pytest.mark.parametrize("num_ops", [20_000, 100_000])
def test_large_problems(num_ops, tmp_path, capsys):
    found, same, placement = solved(
        layered_problem(num_ops, 1, 8),
        tmp_path,
        capsys,
        "--budget_seconds=10",
        "--max_trials=100000",
    )
    assert found["best"]["step_seconds"] == pytest.approx(heap_makespan(same, placement), rel=1e-9)
    assert found["gap"] < 0.05
