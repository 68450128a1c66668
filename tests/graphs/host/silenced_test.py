"""What C libraries print is dropped, and standard output is there again afterwards."""

import os
import threading

from tfplace.grouping.coarsen import silenced_stdout


def test_threads_that_silence_at_once_leave_standard_output_open():
    before, begun = os.fstat(1), threading.Event()

    def second():
        begun.set()
        with silenced_stdout():
            pass

    other = threading.Thread(target=second)
    with silenced_stdout():
        other.start()
        begun.wait()
        assert os.fstat(1).st_ino != before.st_ino
    other.join()
    assert os.fstat(1).st_ino == before.st_ino
