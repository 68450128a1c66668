"""Tests of tfplace.search.instance."""

import numpy as np

from tests.builders import two_towers
from tfplace.search.instance import Instance, read_task, write_task


def test_an_instance_comes_back_from_its_folder(tmp_path):
    problem = two_towers()
    given = np.arange(problem.num_ops, dtype=np.int32) % 2
    for number, expert in enumerate((None, 1 - given)):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_task(str(folder), Instance(problem, given, expert))
        found = read_task(str(folder))
        np.testing.assert_array_equal(found.given, given)
        np.testing.assert_array_equal(found.problem.op_seconds, problem.op_seconds)
        assert (found.expert is None) == (expert is None)
        if expert is not None:
            np.testing.assert_array_equal(found.expert, expert)
