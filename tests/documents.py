"""Where the documents lie, and the blocks that they show."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "tfplace" / "docs"
README = ROOT / "README.md"


def blocks(page, language):
    """The fenced blocks of a page in one language, "" for those without one."""
    text = page.read_text(encoding="utf-8")
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [block for name, block in fenced if name == language]


def commands(page):
    """What stands in a block without a language as a command of tfplace, its lines joined."""
    for block in blocks(page, ""):
        for line in block.replace("\\\n", " ").splitlines():
            command = re.match(r"(?:\$ )?(tfplace [a-z]+( .*)?)$", line)
            if command:
                yield " ".join(command[1].split())
