"""The network bound: valid on small split steps, and what it is of some by hand."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs.cluster import COMMUNICATION_RULES
from graphs.problem import Problem
from tests.builders import Machine, Op, build_problem
from tests.tfplace.bounds.brute_force import optimum_seconds
from tfplace.bounds import network_program
from tfplace.bounds.barriers import barriers_of
from tfplace.bounds.lower_bound import lower_bound_seconds
from tfplace.bounds.network_bound import network_bound, sites_of
from tfplace.bounds.network_program import Rows, families_of
from tfplace.bounds.step_roles import step_roles


def normalised_step(
    shards: int,
    seconds: list[float],
    sizes: list[int],
    machine: Machine,
    faster: float = 1.0,
    own: bool = False,
) -> Problem:
    """Layers, each of which waits for a statistic of the one before it over the whole batch.

    The third reads the batch as well.

    Args:
      shards: M.
      seconds: of a copy of each layer on the first device.
      sizes: bytes of a shard's part of the batch, then of what each layer makes of it.
      machine: where it runs.
      faster: how many times longer the layers take on the first device, where the batch is cut.
      own: whether something reads the first layer that waits for no other shard.
    """
    ops = [Op("x", 0.0, (), (sizes[0] * shards,))]
    parts = [f"x/cut:{m}" for m in range(shards)]
    ops.append(Op("x/cut", 0.5, ("x:0",), sizes[:1] * shards, pin=0))
    below, statistic = parts, []
    for layer, each in enumerate(seconds):
        names = [f"l{layer}/shard_{m}" for m in range(shards)]
        for name, read, part in zip(names, below, parts, strict=True):
            took = [each * faster] + [each] * (machine.num_devices - 1)
            again = [part] if layer == 2 else []
            ops.append(Op(name, took, (read, *statistic, *again), (sizes[layer + 1],)))
        below = [f"{name}:0" for name in names]
        ops.append(Op(f"mean{layer}", 0.0, below, (0,)))
        statistic = [f"mean{layer}:0"]
    ops += [Op(f"own/shard_{m}", 0.0, (f"l0/shard_{m}:0",)) for m in range(shards if own else 0)]
    return build_problem(ops, machine)


def on_two_hosts(problem: Problem) -> Problem:
    """The first device alone and the others on another host, a network card each."""
    host = np.minimum(np.arange(problem.num_devices), 1)
    channels = problem.link_channels.copy()
    apart = host[:, None] != host[None, :]
    first = int(channels.max()) + 1
    cards = np.stack([np.broadcast_to(host[:, None], apart.shape),
                      np.broadcast_to(host[None, :] + 2, apart.shape)], axis=2)  # fmt: skip
    channels[apart] = first + cards[apart]
    return dataclasses.replace(problem, link_channels=channels)


def bound_alone(problem: Problem, at_least: float, ready: float = 0.0) -> float:
    """The bound, with nothing done before `ready`."""
    roles = step_roles(problem)
    work = roles.least * np.where(roles.is_copy, roles.num_shards, 1)[:, None]
    return network_bound(roles, work, np.full(len(roles.roles), ready), at_least)


@st.composite
def steps(draw: st.DrawFn) -> Problem:
    """Steps of two or three layers, whose batch takes about as long to send as to work on."""
    shards, devices = draw(st.sampled_from([(2, 2), (2, 2), (3, 2), (2, 3)]))
    layers = 2 if shards * devices == 6 else draw(st.integers(2, 3))
    machine = Machine(
        devices,
        latency=draw(st.sampled_from([0.0, 0.25])),
        bandwidth=draw(st.sampled_from([1.0, 3.0])),
        slots=draw(st.sampled_from([1, 1, 2])),
        communication=draw(st.sampled_from(sorted(COMMUNICATION_RULES))),
    )
    seconds = draw(st.lists(st.sampled_from([0.25, 1.0, 4.0]), min_size=layers, max_size=layers))
    sizes = draw(st.lists(st.integers(0, 6), min_size=layers + 1, max_size=layers + 1))
    faster = draw(st.sampled_from([0.5, 1.0, 4.0, np.inf]))
    problem = normalised_step(shards, seconds, sizes, machine, faster)
    return on_two_hosts(problem) if draw(st.booleans()) else problem


@settings(max_examples=60, deadline=None)
@given(steps(), st.sampled_from([0.25, 1.0, 8.0]))
def test_no_placement_beats_it(problem: Problem, at_least: float) -> None:
    optimum = optimum_seconds(problem) * (1.0 + 1e-9)
    assert bound_alone(problem, at_least) <= max(optimum, at_least)
    assert lower_bound_seconds(problem) <= optimum


def test_a_batch_that_takes_long_to_send_holds_up_all_that_waits_for_it() -> None:
    # Two shards of 1 and 10 s, 4 bytes each, at a byte a second; the cut takes A half a second.
    # With a share y of the first layer on B its barrier is passed at max(8 y, 0.5 + 2 (1 - y)), so
    # at 2 s for y = 0.25; all can be done 10 s later if as much again, 2 s, is sent meanwhile.
    problem = normalised_step(2, [1.0, 10.0], [4, 4, 1], Machine(2, types=["GPU"] * 2))
    assert bound_alone(problem, 11.0) == pytest.approx(12.0, rel=1e-6)
    # Nothing leaves A before the cut is done: 0.5 + 8 y = 0.5 + 2 (1 - y).
    assert bound_alone(problem, 11.0, ready=0.5) == pytest.approx(12.1, rel=1e-6)
    assert lower_bound_seconds(problem) <= optimum_seconds(problem)


def test_what_cannot_stay_is_sent() -> None:
    problem = normalised_step(2, [1.0, 10.0], [4, 4, 1], Machine(2), faster=np.inf)
    # The cut, both parts, and what then is left of the first layer, and the second.
    assert optimum_seconds(problem) == pytest.approx(0.5 + 8.0 + 1.0 + 20.0)
    assert lower_bound_seconds(problem) == pytest.approx(0.5 + 8.0 + 20.0)


def test_a_batch_that_is_sent_at_once_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = normalised_step(2, [1.0, 10.0], [4, 4, 1], Machine(2, bandwidth=1e3))
    monkeypatch.setattr("tfplace.bounds.network_bound.barriers_of", None)
    assert bound_alone(problem, 11.0) == 0.0


def test_barriers_stand_where_all_wait_for_all() -> None:
    roles = step_roles(normalised_step(3, [1.0, 1.0, 1.0], [1, 1, 1, 1], Machine(2), own=True))
    found, named = barriers_of(roles), [role[0] for role in roles.roles]
    around = dict(zip(named, zip(found.after, found.until, strict=True), strict=True))
    assert found.count == 3
    assert around["x/cut"] == (0, 1)
    assert [around[f"l{layer}"] for layer in range(3)] == [(0, 1), (1, 2), (2, 3)]
    assert around["own"] == (0, 4)
    assert [around[f"mean{layer}"] for layer in range(3)] == [(1, 2), (2, 3), (3, 4)]


def test_families_are_what_shards_send_themselves() -> None:
    roles = step_roles(normalised_step(3, [1.0, 1.0], [5, 7, 2], Machine(2)))
    named = {role[0]: number for number, role in enumerate(roles.roles)}
    found = {(f.maker, f.users): (f.num_bytes, f.is_cut) for f in families_of(roles, 3.0)}
    assert found[named["x/cut"], (named["l0"],)] == (15, True)
    assert found[named["l0"], (named["l1"],)] == (21, False)  # not what the mean is sent
    assert found[named["x"], (named["x/cut"],)] == (15, False)


def test_sites_are_hosts_or_devices() -> None:
    problem = normalised_step(2, [1.0], [1, 1], Machine(3, bandwidth=2.0))
    assert sorted(tuple(site.devices) for site in sites_of(problem)) == [
        (False, False, True), (False, True, False), (True, False, False),
    ]  # fmt: skip
    hosts = [(tuple(s.devices), s.bytes_per_second) for s in sites_of(on_two_hosts(problem))]
    assert sorted(hosts) == [((False, True, True), 2.0), ((True, False, False), 2.0)]
    free = dataclasses.replace(problem, link_channels=np.full_like(problem.link_channels, -1))
    assert sites_of(free) == []


def test_prices_that_are_wrong_only_weaken_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows()
    rows.add([(0, 1.0), (1, 2.0)], 4.0)  # x + 2 y >= 4
    rows.add([(0, 1.0), (1, -1.0)], 0.0)  # x >= y
    most = np.array([10.0, 1.0])
    assert rows.least_of(0, most) == pytest.approx(2.0)
    for prices in ([0.5, 0.1], [3.0, 0.0], [-1.0, 0.5]):
        solved = SimpleNamespace(x=most, ineqlin=SimpleNamespace(marginals=-np.array(prices)))
        monkeypatch.setattr(network_program, "linprog", lambda *_, found=solved, **__: found)
        assert rows.least_of(0, most) <= 2.0 + 1e-12
