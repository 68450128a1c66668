"""How a command ends that was interrupted."""

import pytest

from tfplace.commands.outcome import EXIT_INTERRUPTED, interrupted


@pytest.mark.parametrize(
    ("num_trials", "said"),
    [(0, "interrupted;"), (1, "interrupted after 1 trial;"), (2000, "after 2,000 trials;")],
)
def test_trials_are_counted_where_there_were_any(num_trials, said, capsys):
    assert interrupted("optimizing 'm'", num_trials, "is in out") == EXIT_INTERRUPTED
    error = capsys.readouterr().err
    assert error.startswith("tfplace: error: optimizing 'm': interrupted")
    assert f"{said} the best so far is in out\n" in error
