"""Gradients found by their names, and tied to their forward ops where kernels allow it."""

import numpy as np

from graphs.building.gradients import forward_ops, tied_gradients

NAMES = (
    "a/mul",
    "call/b/MatMul",
    "gradients/a/mul_grad/Mul",
    "gradients/a/mul_grad/tuple/control_dependency",
    "train/gradients_1/a/mul_grad/Sum",
    "call/gradient_tape/b/MatMul/MatMul_1",
    "gradients/AddN",
    "gradients/Fill",
    "mygradients/a/mul_grad/Mul",
)


def test_gradients_are_found_by_name():
    assert forward_ops(NAMES).tolist() == [-1, -1, 0, 0, 0, 1, -1, -1, -1]


def test_they_join_their_forward_ops_and_all_that_lies_with_those():
    none = np.full(len(NAMES), -1, np.int32)
    allowed = np.ones((len(NAMES), 2), bool)
    assert tied_gradients(NAMES, none, allowed).tolist() == [0, 1, 0, 0, 0, 1, -1, -1, -1]
    groups = none.copy()
    groups[[5, 7]] = 0
    assert tied_gradients(NAMES, groups, allowed).tolist() == [0, 1, 0, 0, 0, 1, -1, 1, -1]


def test_what_has_no_kernel_beside_its_forward_op_stays_apart():
    allowed = np.ones((len(NAMES), 2), bool)
    allowed[0] = [True, False]
    allowed[2] = [False, True]
    none = np.full(len(NAMES), -1, np.int32)
    assert tied_gradients(NAMES, none, allowed).tolist() == [0, 1, -1, 0, 0, 1, -1, -1, -1]
