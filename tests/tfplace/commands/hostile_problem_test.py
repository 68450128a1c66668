"""Problem files that are damaged, malicious or senseless: status 2, one line, nothing written."""

import contextlib
import io
import os
import zipfile

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from graphs.problem_arrays import CONTENTION, EXECUTOR
from graphs.problem_file import write_problem
from tests.builders import Machine, diamond, with_executor
from tests.tfplace.hostile_input_test import file_of
from tfplace.cli import main

PROBLEM = with_executor(
    diamond(machine=Machine(2)), slowdown=[0.5] * 4, turn=[[0, 2, 1, 3], [0, 1, 2, 3]]
)
WHOLE = io.BytesIO()
write_problem(WHOLE, PROBLEM, np.zeros(4, dtype=np.int32))
WHOLE.seek(0)
with np.load(WHOLE) as _archive:
    ARRAYS = {name: _archive[name] for name in _archive.files}
PLAIN = io.BytesIO()
write_problem(PLAIN, diamond(), np.zeros(4, dtype=np.int32))
_OF_EXECUTOR = [*EXECUTOR, *CONTENTION, "sends_first"]
BIG, WRAP = 2**62, np.int64(2**32)


def _arrays(**changes):
    """The file with some arrays replaced; None leaves one out."""

    def make(path):
        arrays = {name: array for name, array in {**ARRAYS, **changes}.items() if array is not None}
        np.savez(path.open("wb"), **arrays)

    return make


def _with(name, value, index=0):
    """The file with one value of an array changed."""
    array = ARRAYS[name].astype(np.result_type(ARRAYS[name], np.min_scalar_type(value)))
    array.flat[index] = value
    return _arrays(**{name: array})


def _member(name, content, **kinds):
    """The file with the bytes of one member replaced."""

    def make(path):
        with zipfile.ZipFile(path, "w", **kinds) as archive:
            for each, array in ARRAYS.items():
                plain = io.BytesIO()
                np.save(plain, array)
                archive.writestr(f"{each}.npy", content if each == name else plain.getvalue())

    return make


def _header(text):
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def _claims(shape):
    return _header(f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}\n") + bytes(8)


def _two(name):
    return np.repeat(ARRAYS[name], 2, axis=0)


FILES = {
    "no file": (lambda path: None, "no such file"),
    "a folder": (lambda path: path.mkdir(), "found a folder; wanted an .npz"),
    "a fifo": (lambda path: os.mkfifo(path), "found what is no regular file; wanted an .npz"),
    "empty": (file_of(b""), "wanted an .npz"),
    "text": (file_of(b"op_names: a, b"), "wanted an .npz"),
    "random": (file_of(np.random.default_rng(3).bytes(4000)), "wanted an .npz"),
    "one array, no archive": (lambda path: np.save(path.open("wb"), np.zeros(3)), "wanted an .npz"),
    "truncated": (file_of(WHOLE.getvalue()[:-300]), "wanted an .npz"),
    "half": (file_of(WHOLE.getvalue()[: len(WHOLE.getvalue()) // 2]), "wanted an .npz"),
    "an empty archive": (file_of(b"PK\x05\x06" + bytes(18)), "lacks op_names"),
    "a member that is no array": (_member("use_op", b"hello"), "wanted an .npz"),
    "a member without content": (_member("use_op", b""), "wanted an .npz"),
    "a header without end": (_member("use_op", _header("{'descr': '<i4', ")), "wanted an .npz"),
    "a header of code": (_member("use_op", _header("__import__('os').abort()")), "wanted an .npz"),
    "a nested header": (_member("use_op", _header("(" * 5000)), "wanted an .npz"),
    "more than there is": (_member("op_seconds", _claims("(1000000000000, 2)")), "16,000,000,"),
    "a negative shape": (_member("op_seconds", _claims("(-1, -1)")), "holds 8"),
    "less than there is": (_member("op_seconds", _claims("(0, 2)")), "holds 8"),
    "pickled": (_arrays(op_names=np.array([{}] * 4, dtype=object)), "pickled"),
    "no op_seconds": (_arrays(op_seconds=None), "lacks op_seconds"),
    "no placement": (_arrays(placement=None), "lacks placement"),
    "nothing of devices": (_arrays(device_names=None, device_slots=None), "lacks device_names"),
    "half an executor": (_arrays(shares_memory=None), "lacks shares_memory"),
    "an order of no executor": (
        _arrays(**dict.fromkeys(_OF_EXECUTOR)), "has op_turn but lacks send_seconds"
    ),
    "names that are numbers": (_arrays(op_names=np.arange(4)), "op_names is int64"),
    "seconds that are text": (_arrays(op_seconds=np.full((4, 2), "1")), "op_seconds is <U1"),
    "complex seconds": (_arrays(op_seconds=np.ones((4, 2), complex)), "op_seconds is complex"),
    "indices that are floats": (_arrays(use_op=np.ones(4)), "use_op is float64"),
    "bytes that are records": (_arrays(tensor_bytes=np.zeros(4, "i8,i8")), "tensor_bytes is ["),
    "seconds of fewer devices": (_arrays(op_seconds=np.ones((4, 1))), "is float64[4, 1]"),
    "seconds without devices": (_arrays(op_seconds=np.ones(4)), "wanted f8[4, 2]"),
    "a scalar for names": (_arrays(op_names=np.array("a")), "op_names is"),
    "links of other devices": (_arrays(link_latency=np.zeros((3, 3))), "link_latency is"),
    "two reserves": (_arrays(memory_reserve=np.zeros(2)), "memory_reserve is"),
    "no ops": (_arrays(op_names=np.array([], "U1")), "at least one op"),
    "no devices": (_arrays(device_names=np.array([], "U1")), "at least one device"),
    "equal names": (_arrays(op_names=np.array(["a", "b", "a", "c"])), "'a' 2 times"),
    "equal devices": (_arrays(device_names=np.array(["d", "d"])), "'d' 2 times"),
    "seconds that are NaN": (_with("op_seconds", np.nan), "op_seconds has to be"),
    "negative seconds": (_with("op_seconds", -1.0), "op_seconds has to be"),
    "endless seconds": (_with("op_seconds", 1e300), "op_seconds has to be"),
    "no slots": (_with("device_slots", 0), "device_slots has to be"),
    "negative bytes": (_with("tensor_bytes", -1), "tensor_bytes has -1"),
    "negative temporaries": (_with("op_temp_bytes", -7), "op_temp_bytes has -7"),
    "negative memory": (_with("device_memory_bytes", -1), "device_memory_bytes has -1"),
    "bytes beyond 64 bits": (_arrays(tensor_alloc_bytes=np.full(4, BIG)), "1.84e+19 bytes"),
    "bytes without a sign": (
        _arrays(tensor_bytes=np.full(4, 2**63 + 5, np.uint64)), "wanted none beyond"
    ),
    "latency that is NaN": (_with("link_latency", np.nan, 1), "link_latency has to be"),
    "endless latency": (_with("link_latency", np.inf, 1), "link_latency has to be finite"),
    "negative latency": (_with("link_latency", -1.0, 1), "link_latency has to be"),
    "no bandwidth": (_with("link_bytes_per_second", 0.0, 1), "more than 0"),
    "a channel too far": (_with("link_channels", 2**31 - 1, 2), "link_channels has values"),
    "negative channels": (_with("link_channels", -2, 2), "link_channels has values"),
    "a reserve of all": (_arrays(memory_reserve=np.float64(1.0)), "memory_reserve has to be"),
    "a reserve that is NaN": (_arrays(memory_reserve=np.float64("nan")), "memory_reserve has"),
    "a cycle": (_arrays(use_op=ARRAYS["use_op"][::-1].copy()), "topological order"),
    "an op that uses itself": (_with("use_op", 0), "topological order"),
    "a use of no tensor": (_with("use_tensor", 9), "use_tensor has values from 0 to 9"),
    "a use before the first": (_with("use_tensor", -1), "use_tensor has values from -1"),
    "a user that wraps to one": (_arrays(use_op=ARRAYS["use_op"] + WRAP), "wanted none beyond"),
    "a maker that is none": (_with("tensor_producer", 4), "tensor_producer has values"),
    "a buffer of nobody": (
        _arrays(tensor_shares=np.array([-1, 9, -1, -1])), "tensor_shares has values from -1 to 9"
    ),
    "a buffer that is not at hand": (
        _arrays(tensor_shares=np.array([3, -1, -1, -1])), "can't hand on"
    ),
    "a use that comes twice": (
        _arrays(use_tensor=_two("use_tensor"), use_op=_two("use_op")), "distinct pairs"
    ),
    "a group beyond": (_with("colocation_group", 99), "colocation_group has values"),
    "a pin to nowhere": (_with("pinned_device", 2), "pinned_device has values"),
    "a pin below": (_with("pinned_device", -2), "pinned_device has values"),
    "a placement nowhere": (_with("placement", 2), "devices 0 to 2"),
    "an order with gaps": (_with("op_turn", 0, 1), "op_turn lacks"),
    "endless sends": (_with("send_seconds", np.inf), "send_seconds has to be"),
    "slowdowns that are NaN": (_with("op_slowdown", np.nan), "op_slowdown has to be"),
}  # fmt: skip


@pytest.mark.parametrize("what", FILES)
def test_a_malformed_problem_gives_status_2_and_one_line(what, tmp_path, capsys):
    make, found = FILES[what]
    make(tmp_path / "p.npz")
    before = sorted(tmp_path.iterdir())
    words = [f"--placement={tmp_path}/best.json", "--verbosity=-1", "--budget_seconds=0.1"]
    assert main(["solve", str(tmp_path / "p.npz"), *words]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("tfplace: error: reading the problem ")
    assert found in captured.err and captured.err.count("\n") == 1 and len(captured.err) < 1500
    assert captured.out == "" and sorted(tmp_path.iterdir()) == before


def test_there_are_forty_kinds():
    assert len(FILES) >= 40


@pytest.mark.parametrize("name", [name for name in ARRAYS if name not in ("placement", "op_turn")])
def test_any_array_of_another_size_is_found(name, tmp_path, capsys):
    _arrays(**{name: np.concatenate([np.atleast_1d(ARRAYS[name])] * 3)})(tmp_path / "p.npz")
    assert main(["solve", str(tmp_path / "p.npz"), "--verbosity=-1"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_an_archive_that_unpacks_to_more_than_a_machine_holds(tmp_path, capsys, monkeypatch):
    import psutil

    free = psutil.virtual_memory()._replace(available=1000)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    (tmp_path / "p.npz").write_bytes(WHOLE.getvalue())
    assert main(["solve", str(tmp_path / "p.npz"), "--verbosity=-1"]) == 2
    assert "this machine has 1,000 free" in capsys.readouterr().err


@seed(7)
@settings(max_examples=60, deadline=None, database=None)
@given(st.data())
def test_damage_of_any_kind_is_a_problem_or_one_line(tmp_path_factory, data):
    content = bytearray(PLAIN.getvalue())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        if data.draw(st.booleans()):
            content[at] ^= 1 << data.draw(st.integers(0, 7))
        else:
            del content[at : at + data.draw(st.integers(1, 40))]
    path = tmp_path_factory.mktemp("damaged") / "p.npz"
    path.write_bytes(bytes(content))
    errors = io.StringIO()
    words = ["--algorithm=etf", "--budget_seconds=0.01", "--verbosity=-1"]
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        status = main(["solve", str(path), *words])
    assert status in (0, 2)
    assert errors.getvalue().count("\n") == (status != 0)
