"""Bounds for any number of shards: never above the best of all placements of all splits."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs.problem import Problem
from tests.builders import Machine, Op, build_problem
from tests.split_steps import split_step
from tests.tfplace.bounds.brute_force import optimum_seconds
from tfplace.bounds.any_split import RangeBound, any_split_bounds, least_of
from tfplace.bounds.number_range import NumberRange, prices_of
from tfplace.bounds.step_roles import step_roles

BATCH = 4


@dataclasses.dataclass(frozen=True)
class Layer:
    """A step of one layer: a weight, its product with the batch, a gradient, an update.

    Attributes:
      fixed, per_entry: what a copy takes on the first device, for whatever and for each entry.
      slower: how many times longer the second device takes.
      size: bytes of the weight.
      update: seconds of the update, which is whole.
      batch: bytes of an entry of the batch, which lies on the first device.
      statistics: whether all shards' sums go to one op that all shards then wait for.
      added: how terms are added: "at_once"; "by_two", each to the sum so far; "round", where of
        three or more shards each but one adds its own and hands the sum on.
      machine: two devices.
    """

    fixed: float
    per_entry: float
    slower: float
    size: int
    update: float
    batch: int
    statistics: bool
    added: str
    machine: Machine

    def split(self, num_shards: int) -> Problem:
        """The step in so many shards; BATCH entries, parts differ by at most one."""
        names = [f"/shard_{m}" for m in range(num_shards)] if num_shards > 1 else [""]
        entries = [len(part) for part in np.array_split(np.arange(BATCH), len(names))]
        ops = [Op("w", 0.0, (), (self.size,), persistent=self.size, colocation=0)]
        ops.append(Op("x", 0.0, (), (self.batch * BATCH,), pin=0))
        parts = ["x:0"]
        if num_shards > 1:
            ops.append(Op("x/cut", 0.0, ("x:0",), [self.batch * count for count in entries], pin=0))
            parts = [f"x/cut:{m}" for m in range(num_shards)]
        for name, count, part in zip(names, entries, parts, strict=True):
            read = ("w:0", part) if self.batch else ("w:0",)
            ops.append(Op(f"l{name}", self._seconds(count), read, (self.size + count,)))
        below = [f"l{name}:0" for name in names]
        if self.statistics and num_shards > 1:
            ops.append(Op("mean", 0.1 * num_shards, below, (1,)))
            below = ["mean:0"] * num_shards
        for name, count, read in zip(names, entries, below, strict=True):
            read_here = (read,) if read == f"l{name}:0" else (read, f"l{name}:0")
            ops.append(Op(f"g{name}", self._seconds(count), read_here, (self.size,)))
        terms = [f"g{name}:0" for name in names]
        if num_shards > 1:
            sums = self._sums(terms)
            ops += sums
            terms = [f"{sums[-1].name}:0"]
        ops.append(Op("update", self.update, (*terms, "w:0"), (), colocation=0))
        return build_problem(ops, self.machine)

    def _sums(self, terms: list[str]) -> list[Op]:
        """Ops that add n tensors move n + 1."""
        if self.added == "at_once" or (self.added == "round" and len(terms) == 2):
            seconds = 0.1 * (len(terms) + 1)
            return [Op("g/summed", seconds, terms, (self.size,), type="AddN")]
        ops, so_far = list[Op](), terms[0]
        kind = "AddN" if self.added == "round" else "AddV2"
        for shard, term in enumerate(terms[1:], 1):
            name = f"g/summed/shard_{shard}" if self.added == "round" else f"g/summed{'_' * shard}"
            name = "g/summed" if shard == len(terms) - 1 else name
            ops.append(Op(name, 0.3, (so_far, term), (self.size,), type=kind))
            so_far = f"{name}:0"
        return ops

    def _seconds(self, entries: int) -> tuple[float, float]:
        seconds = max(self.fixed, 0.25 + self.per_entry * entries)
        return seconds, seconds * self.slower

    @functools.cached_property
    def optimum(self) -> float:
        """The least step of all placements of all splits."""
        return min(optimum_seconds(self.split(shards)) for shards in range(1, BATCH + 1))


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    """Layers of all kinds of proportions."""
    machine = Machine(
        2,
        latency=draw(st.sampled_from([0.0, 0.2])),
        bandwidth=draw(st.sampled_from([1.0, 4.0, 100.0])),
        slots=draw(st.sampled_from([1, 1, 2])),
        communication=draw(st.sampled_from(["duplex", "sender", "half_duplex"])),
    )
    return Layer(
        fixed=draw(st.sampled_from([0.0, 0.5, 2.0])),
        per_entry=draw(st.sampled_from([0.0, 0.5, 3.0])),
        slower=draw(st.sampled_from([1.0, 1.0, 2.5])),
        size=draw(st.sampled_from([1, 4, 16])),
        update=draw(st.sampled_from([0.0, 1.0])),
        batch=draw(st.sampled_from([0, 1, 4])),
        statistics=draw(st.booleans()),
        added=draw(st.sampled_from(["at_once", "by_two", "round"])),
        machine=machine,
    )


@settings(max_examples=30, deadline=None)
@given(layers(), st.sampled_from([(1, 2), (1, 3), (1, 4), (1, 2, 3), (1, 2, 4), (1, 3, 4)]))
def test_no_placement_of_any_split_beats_it(layer: Layer, read: tuple[int, ...]) -> None:
    bounds = any_split_bounds({shards: layer.split(shards) for shards in read}, BATCH)
    assert (least_of(bounds) or 0.0) <= layer.optimum
    for shards in range(1, BATCH + 1):
        held = [each.lower_bound_seconds for each in bounds if each.first <= shards <= each.last]
        assert len(held) == 1  # every number of shards lies in one range
        assert held[0] <= optimum_seconds(layer.split(shards))


def heavy(**other: Any) -> Layer:
    """A layer of 4 s an entry and an update of 3 s, on two devices that nothing takes to reach."""
    known: dict[str, Any] = {"fixed": 0.0, "per_entry": 4.0, "slower": 1.0, "size": 1, "batch": 0}
    known |= {"update": 3.0, "statistics": False, "added": "at_once"}
    return Layer(**{**known, "machine": Machine(2, bandwidth=1e9), **other})


def test_work_and_whole_ops_count_in_every_range() -> None:
    layer = heavy()
    bounds = any_split_bounds({1: layer.split(1), 4: layer.split(4)}, BATCH)
    assert [(each.first, each.last) for each in bounds] == [(1, 1), (2, 2), (3, 3), (4, 4)]
    # 2 ops of 16.25 s and the update, one after another; else two devices share 2 x 16.25 + 3 s.
    assert bounds[0].lower_bound_seconds == pytest.approx(16.25 * 2 + 3.0)
    assert bounds[1].lower_bound_seconds == pytest.approx((16.25 * 2) / 2 + 3.0)
    assert bounds[3].lower_bound_seconds == pytest.approx((17.0 * 2 + 0.5) / 2 + 3.0, abs=0.3)
    assert bounds[3].lower_bound_seconds <= optimum_seconds(layer.split(4))


def test_what_a_copy_takes_is_known_between_and_beyond_what_was_read() -> None:
    layer = heavy(fixed=0.5)
    problem = {shards: step_roles(layer.split(shards)) for shards in (2, 4)}
    names = [("l", "Op", True)]
    prices = prices_of(names, list(problem.values()), BATCH)
    assert prices.entries == [1, 2]
    assert prices.least(3) == pytest.approx(12.25)  # not 8.25 or 4.25
    beyond = prices_of(names, [step_roles(layer.split(shards)) for shards in (1, 2)], BATCH)
    assert np.isnan(beyond.seconds[-1]).all()  # the unsplit step's op is no copy
    assert beyond.least(1) == pytest.approx(8.25 / 2)


def test_sums_count_in_whatever_pieces_they_are_done() -> None:
    round_, at_once = heavy(added="round"), heavy(added="at_once")
    for layer in (round_, at_once):
        roles = {shards: step_roles(layer.split(shards)) for shards in (2, 4)}
        assert roles[2].sums["g/summed"] == pytest.approx(0.3)
    assert step_roles(round_.split(4)).sums["g/summed"] == pytest.approx(0.9)
    assert step_roles(at_once.split(4)).sums["g/summed"] == pytest.approx(0.5)
    whole = NumberRange(3, 3, step_roles(round_.split(2)), step_roles(round_.split(4)), (), BATCH)
    assert whole._sums() == pytest.approx(np.full((1, 2), 0.3))


def test_a_range_is_cut_until_one_number_is_the_least() -> None:
    layer = heavy(per_entry=1.0, update=0.0, machine=Machine(4, bandwidth=1e9))
    steps = {shards: _on(layer, shards, 4) for shards in (1, 2)}
    bounds = any_split_bounds(steps, BATCH)
    numbers = [shards for each in bounds for shards in range(each.first, each.last + 1)]
    assert numbers == list(range(1, BATCH + 1))
    least = min(bounds, key=lambda each: each.lower_bound_seconds)
    assert least.first == least.last


def _on(layer: Layer, shards: int, devices: int) -> Problem:
    """A layer's step on more devices like the first."""
    split = dataclasses.replace(layer, machine=Machine(2)).split(shards)
    same = np.repeat(split.op_seconds[:, :1], devices, axis=1)
    other = build_problem([Op("one", 1.0)], Machine(devices, bandwidth=1e9))
    return dataclasses.replace(
        other, graph=split.graph, op_seconds=same, pinned_device=split.pinned_device
    )


def test_an_unsplit_step_alone_says_nothing_of_others() -> None:
    assert any_split_bounds({1: split_step(1)}, BATCH) == []
    assert least_of([]) is None
    assert least_of([RangeBound(1, 1, 2.0), RangeBound(2, 8, 1.5)]) == 1.5


def test_roles_are_one_shard_and_what_is_whole() -> None:
    roles = step_roles(split_step(3, num_layers=1))
    named = dict(zip([role[0] for role in roles.roles], range(len(roles.roles)), strict=True))
    assert list(named) == ["x", "x/cut", "w0", "l0", "grad/l0", "grad/l0/summed", "update0"]
    assert roles.problem.graph.op_names[named["l0"]] == "l0/shard_2"
    assert roles.is_copy.tolist() == [False] * 3 + [True] * 2 + [False] * 2
    assert np.flatnonzero(roles.gathers).tolist() == [named["grad/l0/summed"]]
    graph = roles.problem.graph
    out = graph.tensor_producer[roles.sharing.fans_out]
    assert out.tolist() == [named["w0"]]  # not x/cut, whose parts go to a shard each
    # Not the activations, whose copies go to an op each; a gradient's terms go to one sum.
    once = graph.tensor_producer[roles.sharing.used_once]
    assert named["grad/l0"] in once and named["l0"] not in once


def test_what_goes_to_some_of_the_shards_only_makes_no_fan() -> None:
    ops = [Op("w", 0.0, (), (8,)), *(Op(f"a/shard_{m}", 1.0, ("w:0",)) for m in (0, 1))]
    ops += [Op("v", 0.0, (), (8,)), *(Op(f"b/shard_{m}", 1.0) for m in (0, 1))]
    ops += [Op(f"c/shard_{m}", 1.0, ("v:0",) if m else ()) for m in (0, 1)]
    ops += [Op("half", 0.1, ("a/shard_0:0",)), Op("other", 0.1, ("a/shard_1:0", "b/shard_0:0"))]
    roles = step_roles(build_problem([*ops, Op("d", 0.1, ("v:0",))]))
    graph, sharing = roles.problem.graph, roles.sharing
    named = [graph.op_names[op] for op in graph.tensor_producer]
    assert dict(zip(named, sharing.fans_out.tolist(), strict=True))["w"]
    assert not dict(zip(named, sharing.fans_out.tolist(), strict=True))["v"]
    assert not dict(zip(named, sharing.used_once.tolist(), strict=True))["a/shard_1"]
