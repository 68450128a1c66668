"""`python -m graphs.host.answering PIPE MODULE`: the process of an `AskedChild`.

The module's `main` takes the `Parent`. What it imports is imported before a request is there.
"""

import importlib
import sys
from collections.abc import Sequence

from graphs.host.parent import Parent


def main(argv: Sequence[str]) -> None:
    """Hands the request to the module that answers it."""
    pipe, module = argv
    asked = importlib.import_module(module)
    asked.main(Parent([pipe], uses_gpus=getattr(asked, "USES_GPUS", False)))


if __name__ == "__main__":
    main(sys.argv[1:])
