"""Tests of tfplace.runs.resumable: whatever ends a run, the next one does the rest, and no more."""

import contextlib
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs.errors import ModelError
from tfplace.runs.executors.program import Ended
from tfplace.runs.resumable import ResumableRun


class Killed(BaseException):
    """Stands for kill -9: nothing after it is written."""


class Numbers(ResumableRun[str]):
    """Items whose rows go from "" over "begun" to "done", kept in a list that outlives the run."""

    def __init__(self, disk, killed_at=10**9):
        super().__init__(disk, self, self.tell)
        self.disk, self.killed_at = disk, killed_at
        self.ran, self.told, self.stops = [], [], 0

    def is_ended(self, row):
        return row == "done"

    def work(self, index):
        self.ran.append(index)
        yield "begun"
        yield "done"

    def keep(self):
        self.killed_at -= 1
        if self.killed_at < 0:
            raise Killed
        self.disk[:] = self.rows

    def tell(self, *told):
        assert self.disk == self.rows  # what is told is written
        self.told.append(told)

    def stop(self):
        self.stops += 1


def test_rows_are_told_and_kept_one_after_another():
    numbers = Numbers(["", "done", "begun"])
    numbers.run(1)
    assert numbers.ran == [0, 2]
    assert numbers.told == [("begun", 1, 3), ("done", 2, 3), ("begun", 2, 3), ("done", 3, 3)]
    assert numbers.disk == ["done"] * 3
    assert numbers.stops == 1 and not numbers.is_interrupted


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 5), st.lists(st.integers(0, 12), max_size=4), st.integers(1, 3))
def test_killed_however_often_each_item_is_done_and_none_again_that_was(size, kills, parallel):
    disk = [""] * size
    for killed_at in kills:
        before = list(disk)
        numbers = Numbers(disk, killed_at)
        with contextlib.suppress(Killed):
            numbers.run(parallel)
        assert {before[index] for index in numbers.ran} <= {"", "begun"}
        assert all(
            after == "done" for row, after in zip(before, disk, strict=True) if row == "done"
        )
    last = Numbers(disk)
    last.run(parallel)
    assert disk == ["done"] * size


@pytest.mark.parametrize(
    ("error", "ended"),
    [
        (ModelError("reading x: it is no model"), Ended(2, b"", "", "reading x: it is no model")),
        (KeyError("x"), Ended(-1, b"", "", "a defect of tfplace: KeyError: 'x'")),
    ],
)
def test_what_an_item_meets_is_how_it_ended(error, ended):
    class Failing(Numbers):
        def work(self, index):
            def program():
                raise error

            yield repr(self._ended(program))

    numbers = Failing([""])
    numbers.run(1)
    assert numbers.disk == [repr(ended)]


def test_what_an_item_raises_elsewhere_ends_the_run_and_the_others_are_not_begun():
    class Failing(Numbers):
        def work(self, index):
            yield from super().work(index)
            raise OSError("the disk is full")

    numbers = Failing([""] * 50)
    with pytest.raises(OSError, match="the disk is full"):
        numbers.run(1)
    assert numbers.stops == 1 and len(numbers.ran) < 50


def test_items_run_side_by_side_but_rows_are_told_one_at_a_time():
    meeting = threading.Barrier(3)

    class Meeting(Numbers):
        def work(self, index):
            meeting.wait(timeout=60)  # nobody goes on before all three are here
            yield "done"

        def tell(self, *told):
            assert not self.is_telling
            self.is_telling = True
            super().tell(*told)
            self.is_telling = False

    numbers = Meeting([""] * 3)
    numbers.is_telling = False
    numbers.run(3)
    assert numbers.disk == ["done"] * 3
