"""Globs for services, as regular expressions that RE2 (DuckDB) and Java (Spark) read alike. `*` is any text, `?` one
character.
"""

from __future__ import annotations

import re


def regex(glob: str) -> str:
    """A regular expression that matches a whole text if `glob` does."""
    parts = {"*": "(?s:.*)", "?": "(?s:.)"}
    return "".join(parts.get(char, re.escape(char)) for char in glob)
