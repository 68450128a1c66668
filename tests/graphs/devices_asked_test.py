"""Device strings of all ages, and where TensorFlow puts what asks for nothing."""

import pytest

from graphs.devices_asked import match_device

LOCAL = ("/device:CPU:0", "/device:GPU:0", "/device:GPU:1")
WORKERS = ("/job:worker/task:0/device:CPU:0", "/job:worker/task:1/device:CPU:0")


@pytest.mark.parametrize(
    ("device", "names", "index"),
    [
        ("/device:GPU:1", LOCAL, 2),
        ("/gpu:1", LOCAL, 2),
        ("GPU:1", LOCAL, 2),
        ("/job:localhost/replica:0/task:0/device:GPU:0", LOCAL, 1),
        ("/cpu:0", LOCAL, 0),
        ("/device:GPU:*", LOCAL, 1),
        ("/device:TPU:0", LOCAL, -1),
        ("/device:GPU:5", LOCAL, -1),
        ("/job:worker/task:1", WORKERS, 1),
        ("/job:worker/replica:0/task:1/device:CPU:0", WORKERS, 1),
        ("/job:ps/task:1", WORKERS, -1),
    ],
)
def test_partial_device_strings_find_their_device(device, names, index):
    assert match_device(device, names) == index
