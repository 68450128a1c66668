"""TensorFlow, imported when something of it is first used: in place of `import tensorflow`.

Importing it takes seconds, which `tfplace --help` and what needs nothing of it don't wait for.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """What TensorFlow has by this name; it is kept here, where Python finds it at once."""
    import tensorflow

    value = globals()[name] = getattr(tensorflow, name)
    return value
