"""The numpy that writes a problem's file, as it is printed; JAX's and PyTorch's graphs stood in."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from graphs.problem_file import read_problem
from tests.documents import DOCS, blocks
from tests.reference_simulator import reference_run
from tfplace.cli import main

WRITE, OF_JAXPR, USE, OF_FX = blocks(DOCS / "other_graphs.md", "python")
DEVICES = [("gpu0", 10**9), ("gpu1", 10**9)]


def printed(*texts):
    """The functions of code blocks, by name."""
    scope = {}
    for text in texts:
        exec(compile(text, "other_graphs.md", "exec"), scope)
    return SimpleNamespace(**{name: value for name, value in scope.items() if name[0] != "_"})


def solved(path, capsys):
    """The step that was found, and what the file's problem and placement are."""
    words = ["--max_trials=200", "--budget_seconds=1", "--verbosity=-1", "--format=json"]
    best = path.with_name("best.npz")
    assert main(["solve", str(path), *words, f"--placement={best}"]) == 0
    found = json.loads(capsys.readouterr().out)["best"]["step_seconds"]
    problem, placement = read_problem(str(best))
    assert found == pytest.approx(reference_run(problem, placement)[0], rel=1e-9)
    return found, problem


def test_it_takes_thirty_lines_of_code():
    body = WRITE.rpartition('"""\n')[2]
    assert 10 < len(body.splitlines()) <= 30


def test_two_branches_run_side_by_side(tmp_path, capsys):
    ops = [("a", "x", 1.0, 0), ("b", "x", [2.0, 3.0], 8), ("c", "x", 2.0, 8), ("d", "x", 1.0, 0)]
    tensors = [(0, 10, [1, 2]), (1, 10, [3]), (2, 10, [3]), (3, 10, [])]
    printed(WRITE).write_problem(tmp_path / "p.npz", ops, tensors, DEVICES, 0.1, 100.0)
    step, problem = solved(tmp_path / "p.npz", capsys)
    assert step == pytest.approx(4.2)
    assert problem.op_seconds.tolist() == [[1, 1], [2, 3], [2, 2], [1, 1]]


def variable(*shape):
    return SimpleNamespace(aval=np.zeros(shape, np.float32))


class Hashable(SimpleNamespace):
    __hash__ = object.__hash__


def test_a_jaxpr(tmp_path, capsys):
    x, w, y, z = (Hashable(**vars(variable(4, 4))) for _ in range(4))
    literal = SimpleNamespace(val=2.0)
    equations = [
        SimpleNamespace(primitive=SimpleNamespace(name="dot"), invars=[x, w], outvars=[y]),
        SimpleNamespace(primitive=SimpleNamespace(name="mul"), invars=[y, literal], outvars=[z]),
    ]
    jaxpr = SimpleNamespace(constvars=[w], invars=[x], eqns=equations)
    code = printed(WRITE, OF_JAXPR)
    graph = code.of_jaxpr(jaxpr, lambda kind, size: size * 1e-3)
    code.write_problem(tmp_path / "p.npz", *graph, DEVICES, 0.1, 100.0)
    step, problem = solved(tmp_path / "p.npz", capsys)
    assert step == pytest.approx(0.128)
    assert problem.graph.op_types == ["input", "input", "dot", "mul"]
    assert problem.graph.use_op.tolist() == [2, 2, 3]
    assert problem.graph.op_persistent_bytes.tolist() == [64, 64, 0, 0]
    assert problem.graph.tensor_alloc_bytes.tolist() == [0, 0, 64, 64]  # weights are held already


def test_the_lines_that_use_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    x, y = (Hashable(**vars(variable(4, 4))) for _ in range(2))
    double = SimpleNamespace(primitive=SimpleNamespace(name="mul"), invars=[x], outvars=[y])
    made = SimpleNamespace(jaxpr=SimpleNamespace(constvars=[], invars=[x], eqns=[double]))
    jax = SimpleNamespace(make_jaxpr=lambda step: lambda *arguments: made)
    scope = {**vars(printed(WRITE, OF_JAXPR)), "jax": jax, "step": None, "arguments": ()}
    exec(compile(USE, "other_graphs.md", "exec"), scope)
    step, _ = solved(tmp_path / "problem.npz", capsys)
    assert step == pytest.approx(5e-6 + 64 / 5e11)


def test_a_graph_of_fx(tmp_path, capsys):
    value = SimpleNamespace(numel=lambda: 16, element_size=lambda: 4)

    def node(name, op, target, inputs, meta):
        return Hashable(name=name, op=op, target=target, all_input_nodes=inputs, meta=meta)

    x = node("x", "placeholder", "x", [], {"val": value})
    y = node("y", "call_function", "aten.mm", [x], {"val": (value, None)})
    out = node("output", "output", "output", [y], {})
    code = printed(WRITE, OF_FX)
    graph = code.of_fx(SimpleNamespace(nodes=[x, y, out]), lambda kind, size: size * 1e-3)
    code.write_problem(tmp_path / "p.npz", *graph, DEVICES, 0.1, 100.0)
    step, problem = solved(tmp_path / "p.npz", capsys)
    assert step == pytest.approx(0.064)
    assert problem.graph.tensor_bytes.tolist() == [64, 64, 0]
