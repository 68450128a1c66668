"""Where tfplace keeps what later runs use again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """$TFPLACE_CACHE_DIR, or tfplace/ in the user's cache folder (XDG base directories).

    Raises:
      RuntimeError: neither a variable nor the system says where the user's home is.
    """
    own = os.environ.get("TFPLACE_CACHE_DIR")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return home / "tfplace"
