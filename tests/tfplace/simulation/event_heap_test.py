import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tfplace.simulation.event_heap import pop_event, pop_key, push_event, push_key


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3).map(float), st.integers(0, 9)), max_size=20))
def test_events_come_out_sorted(events):
    times, keys, count = np.empty(20), np.empty(20, dtype=np.int64), 0
    for time, key in events:
        count = push_event(times, keys, count, time, key)
    popped = []
    while count:
        popped.append((times[0], keys[0]))
        count = pop_event(times, keys, count)
    assert popped == sorted(events)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=20))
def test_keys_come_out_sorted_and_stay_in_their_part(wanted):
    keys, count = np.full(24, -1, dtype=np.int64), 0
    for key in wanted:
        count = push_key(keys, 2, count, key)
    popped = []
    while count:
        popped.append(keys[2])
        count = pop_key(keys, 2, count)
    assert popped == sorted(wanted)
    assert keys[:2].tolist() == [-1, -1]
