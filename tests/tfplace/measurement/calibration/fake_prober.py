"""A prober that runs nothing."""

import numpy as np


class FakeProber:
    """A step takes 1 s, and each op of a chain 0.1 s, longer where several devices work.

    Of a probe's copies the last one runs at full speed.
    """

    def __init__(self, slowdown):
        self._slowdown = slowdown

    def time(self, probes, budget_seconds):
        last = max(copy for *_, copy in probes)
        answer = {}
        for kind, devices, length, copy in probes:
            slower = (1.0 + self._slowdown[kind] * (len(devices) > 1)) * (1.0 + last - copy)
            answer[kind, devices, length, copy] = np.full(3, 1.0 + 0.1 * length * slower)
        return answer
