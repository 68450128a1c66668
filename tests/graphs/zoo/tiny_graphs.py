"""Tiny benchmark graphs, built once for all tests of this folder."""

import functools

from graphs.zoo import ZooGraph, build


@functools.cache
def tiny(name: str) -> ZooGraph:
    return build(name, "tiny")
