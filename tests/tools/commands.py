"""Every command shown in README and the pages of docs/.

Commands are the indented blocks of these documents, and the spans in the table of docs/release.md.
"""

import re

from tests.conftest import CHECKOUT

DOCUMENTS = ("README.md", *sorted(f"docs/{file.name}" for file in (CHECKOUT / "docs").glob("*.md")))


def commands(text):
    """The lines of a document's indented blocks, except comments."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for block in re.findall(r"^    (.*)", prose, re.MULTILINE):
        yield re.sub(r" +#.*", "", block)


def table(text):
    """The commands of a document's table of them."""
    _, _, rows = text.partition("| command (`scripts/wheel-builder …`)")
    for row in re.findall(r"^\| (`.*?`) \|", rows.partition("\n\n")[0], re.MULTILINE):
        yield from (span.replace("\\|", "|") for span in re.findall(r"`([^`]+)`", row))


def shown():
    """Every command of every document, once."""
    texts = [(CHECKOUT / name).read_text(encoding="utf-8") for name in DOCUMENTS]
    return list(dict.fromkeys(line for text in texts for line in (*commands(text), *table(text))))
