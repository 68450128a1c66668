import pytest

from tfplace.measurement.device_name import (
    DeviceKey,
    DeviceSpelling,
    complete_device,
    device_key,
    task_prefix,
)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("/device:GPU:1", DeviceKey("", 0, "GPU", 1)),
        ("/job:localhost/replica:0/task:0/device:CPU:1", DeviceKey("", 0, "CPU", 1)),
        ("/job:worker/task:2/device:CPU:0", DeviceKey("worker", 2, "CPU", 0)),
        ("/job:worker/replica:0/task:2/cpu:0", DeviceKey("worker", 2, "CPU", 0)),
        ("/job:ps", DeviceKey("ps", 0, "", 0)),
        # As logs of GPUs have them: a worker's seventh, TensorFlow 1.0's, XLA's, a physical one
        # (https://github.com/tensorflow/tensorflow/issues/31969, /10733, /30748).
        ("/job:worker/replica:0/task:0/device:GPU:6", DeviceKey("worker", 0, "GPU", 6)),
        ("/job:localhost/replica:0/task:0/gpu:1", DeviceKey("", 0, "GPU", 1)),
        ("/job:localhost/replica:0/task:0/device:XLA_GPU:3", DeviceKey("", 0, "", 0)),
        ("/physical_device:GPU:1", DeviceKey("", 0, "", 0)),
        ("", DeviceKey("", 0, "", 0)),
    ],
)
def test_key(name: str, key: DeviceKey) -> None:
    assert device_key(name) == key


def test_completing_adds_only_a_missing_job() -> None:
    worker = "/job:worker/task:1/device:CPU:0"
    assert complete_device("/device:CPU:0", worker) == "/job:worker/replica:0/task:1/device:CPU:0"
    assert complete_device("/job:ps/device:CPU:0", worker) == "/job:ps/device:CPU:0"
    assert complete_device("/device:CPU:0", "/device:CPU:0") == "/device:CPU:0"
    assert complete_device("", worker) == ""


def test_prefix_is_empty_on_this_host() -> None:
    assert task_prefix("/job:localhost/replica:0/task:0/device:CPU:0") == ""
    assert task_prefix("/job:worker/task:1") == "/job:worker/replica:0/task:1"


def test_spelling_is_the_clusters_or_else_this_hosts() -> None:
    spelling = DeviceSpelling(["/job:worker/task:1/device:CPU:0", "/device:GPU:0"])
    assert spelling("/job:worker/replica:0/task:1/device:CPU:0") == (
        "/job:worker/task:1/device:CPU:0"
    )
    assert spelling("/job:localhost/replica:0/task:0/device:GPU:0") == "/device:GPU:0"
    assert spelling("/job:localhost/replica:0/task:0/device:CPU:0") == "/device:CPU:0"
