"""Numbers of things, in words."""


def counted(count: int, noun: str, plural: str = "") -> str:
    """1, "op" -> "1 op"; 1200, "op" -> "1,200 ops"; `plural` is for nouns that take no -s."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"
