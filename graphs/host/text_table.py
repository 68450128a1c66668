"""Tables that lie as text or JSON beside the module that reads them."""

import json
from pathlib import Path

from graphs.protos import Json


def table_rows(module_file: str, name: str = "") -> list[list[str]]:
    """The words of each line of a module's table, or of another text of its folder."""
    path = Path(module_file)
    text = (path.with_name(name) if name else path.with_suffix(".txt")).read_text("utf-8")
    return [line.split() for line in text.splitlines() if line]


def json_beside(module_file: str) -> Json:
    """The value of a module's JSON file."""
    return json.loads(Path(module_file).with_suffix(".json").read_text("utf-8"))
