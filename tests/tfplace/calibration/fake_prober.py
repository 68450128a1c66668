"""A prober that runs nothing."""

import numpy as np


class FakeProber:
    """A step takes 1 s, and each op of a chain 0.1 s, longer where several devices work."""

    def __init__(self, slowdown):
        self._slowdown = slowdown

    def time(self, probes, budget_seconds):
        return {
            (kind, devices, length): np.full(
                3, 1.0 + 0.1 * length * (1.0 + self._slowdown[kind] * (len(devices) > 1))
            )
            for kind, devices, length in probes
        }
