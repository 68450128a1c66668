import dataclasses

import numpy as np
import pytest

from graphs.errors import ModelError, PlacementError
from graphs.problem_file import read_problem, write_problem
from tests.builders import Machine, colocated_pair, diamond, random_problem, with_executor
from tests.reference_simulator import reference_run

CONTRACT_NAMES = (
    *("op_names", "op_types", "op_seconds", "tensor_producer", "tensor_bytes"),
    *("tensor_alloc_bytes", "use_tensor", "use_op", "op_persistent_bytes", "op_temp_bytes"),
    *("colocation_group", "pinned_device", "device_names", "device_slots"),
    *("device_memory_bytes", "link_latency", "link_bytes_per_second", "link_channels"),
    *("placement", "memory_reserve"),
)


def _as_dict(value):
    return {
        field.name: getattr(value, field.name)
        for field in dataclasses.fields(value)
        if field.name != "graph"
    }


@pytest.mark.parametrize("problem", [colocated_pair(), random_problem(np.random.default_rng(5))])
def test_what_was_written_is_read(problem, tmp_path):
    placement = np.arange(problem.num_ops, dtype=np.int32) % problem.num_devices
    path = str(tmp_path / "a.problem")
    write_problem(path, problem, placement)
    found, found_placement = read_problem(path)
    np.testing.assert_equal(_as_dict(found), _as_dict(problem))
    np.testing.assert_equal(_as_dict(found.graph), _as_dict(problem.graph))
    np.testing.assert_array_equal(found_placement, placement)


def test_arrays_have_the_names_and_dtypes_of_the_spec(tmp_path):
    path = tmp_path / "a.npz"
    write_problem(str(path), diamond(machine=Machine(3)), np.zeros(4, dtype=np.int64))
    with np.load(path, allow_pickle=False) as archive:
        assert set(CONTRACT_NAMES) < set(archive.files)
        dtypes = {name: archive[name].dtype.str for name in CONTRACT_NAMES}
        assert archive["link_channels"].shape == (3, 3, 2)
        assert archive["memory_reserve"].shape == ()
    integers = {name for name, dtype in dtypes.items() if dtype == "<i4"}
    assert integers == {
        *("tensor_producer", "use_tensor", "use_op", "colocation_group", "pinned_device"),
        *("device_slots", "link_channels", "placement"),
    }
    assert {name for name, dtype in dtypes.items() if dtype == "<i8"} == {
        name for name in CONTRACT_NAMES if name.endswith("_bytes")
    }
    assert dtypes["op_names"].startswith("<U")


def _rewrite(path, **changes):
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    arrays.update(changes)
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})


def test_a_foreign_file_needs_no_extras_and_no_order(tmp_path):
    path = str(tmp_path / "a.npz")
    problem = diamond(machine=Machine(types=["CPU", "GPU"]))
    write_problem(path, problem, np.array([0, 1, 0, 1]))
    with np.load(path) as archive:
        shuffled = {name: archive[name] for name in archive.files}
    order = np.array([2, 0, 3, 1])
    position = np.argsort(order)
    _rewrite(
        path,
        tensor_producer=shuffled["tensor_producer"][order],
        use_tensor=position[shuffled["use_tensor"]].astype(np.int32),
        device_types=None,
        communication=None,
        tensor_output=None,
        tensor_shape=None,
    )
    found, placement = read_problem(path)
    assert (found.communication, found.device_types) == ("unnamed", ("CPU", "GPU"))
    np.testing.assert_equal(_as_dict(found.graph), _as_dict(problem.graph))
    assert reference_run(found, placement) == reference_run(problem, placement)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"use_op": None}, ModelError, "lacks use_op"),
        ({"tensor_bytes": np.zeros(3, dtype=np.int64)}, ModelError, "tensor_bytes is int64"),
        ({"use_op": np.zeros(4, dtype=np.int32)}, ModelError, "topological order"),
        ({"use_op": np.full(4, 9, dtype=np.int32)}, ModelError, "use_op has values"),
        ({"op_seconds": np.full((4, 2), np.nan)}, ModelError, "op_seconds has to be numbers"),
        ({"memory_reserve": np.float64(1.5)}, ModelError, "memory_reserve has to be"),
        ({"placement": np.full(4, 2, dtype=np.int32)}, PlacementError, "devices 2 to 2"),
        ({"device_types": np.array(["CPU", "TPU"])}, ModelError, "device_types has 'TPU'"),
        ({"op_names": np.array([None] * 4)}, ModelError, "wanted an .npz without pickles"),
    ],
)
def test_malformed_files_say_what_is_wrong(changes, error, words, tmp_path):
    path = str(tmp_path / "a.npz")
    write_problem(path, diamond(), np.zeros(4, dtype=np.int32))
    _rewrite(path, **changes)
    with pytest.raises(error, match=words):
        read_problem(path)


def test_no_file_and_no_archive(tmp_path):
    with pytest.raises(ModelError, match="no such file"):
        read_problem(str(tmp_path / "none.npz"))
    with pytest.raises(ModelError, match=r"found a folder; wanted an \.npz"):
        read_problem(str(tmp_path))
    (tmp_path / "text.npz").write_text("PK not really")
    with pytest.raises(ModelError, match="wanted an"):
        read_problem(str(tmp_path / "text.npz"))
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(ModelError, match="wanted an"):
        read_problem(str(tmp_path / "one.npy"))


@pytest.mark.parametrize("turn", [None, [[0, 2, 1, 3], [0, 1, 2, 3]]])
@pytest.mark.parametrize("slowdown", [None, [0.25, 0.5, 0.0, 1.0]])
def test_an_executor_is_written_with_or_without_slowdowns_and_turns(slowdown, turn, tmp_path):
    machine = Machine(2)
    problem = with_executor(diamond(machine=machine), (1, 2), (3, 4), slowdown=slowdown, turn=turn)
    path = str(tmp_path / "a.npz")
    write_problem(path, problem, np.zeros(4, dtype=np.int32))
    found, _ = read_problem(path)
    np.testing.assert_equal(vars(found.executor), vars(problem.executor))


@pytest.mark.parametrize("lost", ["shares_memory", "send_seconds"])
def test_half_an_executor_is_an_error(lost, tmp_path):
    problem = with_executor(diamond(machine=Machine(2)), slowdown=[0.5] * 4)
    path = str(tmp_path / "a.npz")
    write_problem(path, problem, np.zeros(4, dtype=np.int32))
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files if name != lost}
    np.savez(path, **arrays)
    with pytest.raises(ModelError, match=f"lacks {lost}; wanted all or none"):
        read_problem(path)
