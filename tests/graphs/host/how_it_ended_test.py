"""What is said of a process that failed."""

import pytest

from graphs.host.how_it_ended import cause_in

_TRACE = "Traceback (most recent call last):\n  File 'a.py', line 3, in f\n    ValueError: quoted\n"
_OP_FAILED = """errors_impl.NotFoundError: Graph execution error:

Detected at node 'save/RestoreV2' defined at (most recent call last):
  File "build.py", line 55, in _import
Node: 'save/RestoreV2'
Unsuccessful TensorSliceReader constructor: Failed to find any matching files for ck/model
\t [[{{node save/RestoreV2}}]]

Original stack trace for 'save/RestoreV2':
  File "build.py", line 55, in _import
    v1.train.import_meta_graph(meta_graph, clear_devices=True)
"""


@pytest.mark.parametrize(
    ("stderr", "cause"),
    [
        ("", "it said nothing"),
        ("one\n  two\n\n", "two"),
        ("why\nWARNING: All log messages before absl::InitializeLog() is called\nI0000 x\n", "why"),
        (f"{_TRACE}KeyError: 'x'\n\nwarning: late\n", "KeyError: 'x'"),
        ("F0000 Check failed: a == b\n*** trace ***\nlast", "F0000 Check failed: a == b"),
        (
            _TRACE + _OP_FAILED,
            "Unsuccessful TensorSliceReader constructor: Failed to find any matching files for "
            "ck/model",
        ),
        (f"{_TRACE}a.b.NotFoundError: 1\nat\nbad [[{{{{node x}}}}]]", "bad"),
    ],
)
def test_the_cause_is_the_line_that_says_why(stderr, cause):
    assert cause_in(stderr) == cause
