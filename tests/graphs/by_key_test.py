"""Values by their keys."""

from graphs.by_key import by_key


def test_keys_and_their_values_stay_in_order():
    pairs = (pair for pair in [("b", 1), ("a", 2), ("b", 0), ("b", 1)])
    assert list(by_key(pairs).items()) == [("b", [1, 0, 1]), ("a", [2])]
    assert by_key([]) == {}
