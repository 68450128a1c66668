"""What is reached from somewhere."""

from graphs.graph_view import reached

LEADS_TO = {"a": "bc", "b": "d", "c": "d", "d": "a", "e": ""}


def test_circles_end_and_what_several_lead_to_counts_once():
    assert list(reached("a", LEADS_TO.__getitem__)) == ["a", "b", "c", "d"]
    assert list(reached("ee", LEADS_TO.__getitem__)) == ["e"]
    assert reached("", LEADS_TO.__getitem__) == {}
