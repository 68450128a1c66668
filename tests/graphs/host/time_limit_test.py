"""Regular expressions that take for ever end."""

import math
import re
import signal
import threading

import pytest

from graphs.host.time_limit import OutOfTimeError, ending_at, require_time, time_limit


def test_a_catastrophic_expression_is_stopped_and_the_signal_is_as_before():
    before = signal.getsignal(signal.SIGVTALRM)
    with pytest.raises(OutOfTimeError), time_limit(0.05):
        re.search("(a+)+$", "a" * 60 + "b")
    assert signal.getsignal(signal.SIGVTALRM) == before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_what_ends_in_time_is_left_alone():
    with time_limit(50.0):
        assert re.search("a+", "baa")


def test_another_thread_has_no_limit():
    found = []

    def match():
        with time_limit(1e-6):
            found.append(re.search("a+b", "a" * 1000))

    thread = threading.Thread(target=match)
    thread.start()
    thread.join()
    assert found == [None]


def test_work_that_asks_ends_when_it_should_and_an_inner_end_is_no_later():
    require_time()
    with ending_at(0.0), pytest.raises(OutOfTimeError), ending_at(math.inf):
        require_time()
    with ending_at(math.inf):
        require_time()
