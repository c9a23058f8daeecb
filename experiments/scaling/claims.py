"""No paper says what this experiment finds out."""

from collections.abc import Mapping
from typing import Any

CAUTION = ""


def claims(results: Mapping[str, Any]) -> list[Any]:
    """None."""
    return []
