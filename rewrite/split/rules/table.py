"""One rule for each op type. An op type that is not here stays whole.

table.txt names the function, and what it is to combine by, of the op types in each of its lines.
All others of rows.txt have their row alone.
"""

import functools
import importlib
from collections.abc import Callable, Mapping

from graphs.host.text_table import table_rows
from rewrite.split.decision import Answer
from rewrite.split.rules.elementwise import additive, elementwise
from rewrite.split.rules.op_view import OpView
from rewrite.split.rules.rows import ROWS, by_row

Rule = Callable[[OpView], Answer]


def _rule(name: str) -> Rule:
    """The rule "module.function" or "module.function=combine" of this folder."""
    path, _, combine = name.partition("=")
    module, _, function = path.partition(".")
    rule: Callable[..., Answer] = getattr(
        importlib.import_module(f"rewrite.split.rules.{module}"), function
    )
    return functools.partial(rule, combine=combine) if combine else rule


RULES: Mapping[str, Rule] = {
    **dict.fromkeys((op for op in ROWS if ":" not in op), by_row),
    **{op: _rule(name) for name, *ops in table_rows(__file__) for op in ops},
}
ELEMENTWISE = frozenset(op for op, rule in RULES.items() if rule in (additive, elementwise))
"""Each element of their output is computed of the elements at the same place."""
