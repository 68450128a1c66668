"""Device strings, as TensorFlow spells them and as a cluster does.

TensorFlow says "/job:localhost/replica:0/task:0/device:CPU:1" where a cluster says
"/device:CPU:1"; both are one device and have one key.
"""

import dataclasses
import re
from collections.abc import Iterable

_FIELD = re.compile(r"/(job|replica|task):([^/]+)|/(?:device:)?(cpu|gpu|CPU|GPU):(\d+)")


@dataclasses.dataclass(frozen=True)
class DeviceKey:
    """The parts of a device string.

    Attributes:
      job: the task's job; "" on this host.
      task: the task's number in it.
      type: "CPU", "GPU" or "".
      index: which of the task's devices of that type it is.
    """

    job: str
    task: int
    type: str
    index: int


def device_key(name: str) -> DeviceKey:
    """The parts of a device string; what it does not say is "" or 0.

    The replica is dropped (always 0 in TensorFlow 2), and the job "localhost" is this host.
    """
    job, task, kind, index = "", 0, "", 0
    for field, value, device_type, device_index in _FIELD.findall(name):
        if field == "job":
            job = "" if value == "localhost" else value
        elif field == "task":
            task = int(value)
        elif device_type:
            kind, index = device_type.upper(), int(device_index)
    return DeviceKey(job, task, kind, index)


def task_prefix(name: str) -> str:
    """The "/job:…/replica:0/task:…" of a device; empty on this host."""
    key = device_key(name)
    return f"/job:{key.job}/replica:0/task:{key.task}" if key.job else ""


def complete_device(name: str, default: str) -> str:
    """`name` with the job and task of `default` where it has none; "" stays "".

    Beside a cluster's tasks, TensorFlow finds a bare "/device:CPU:0" ambiguous.
    """
    if not name or "/job:" in name:
        return name
    return task_prefix(default) + name[name.index("/") :]


class DeviceSpelling:
    """Gives every device the name that the cluster has for it."""

    def __init__(self, cluster_names: Iterable[str]) -> None:
        self._name_of_key = {device_key(name): name for name in cluster_names}

    def __call__(self, name: str) -> str:
        """The cluster's name; a device that it does not have is spelled as on this host."""
        key = device_key(name)
        return self._name_of_key.get(key) or (
            f"{task_prefix(name)}/device:{key.type}:{key.index}" if key.type else name
        )
