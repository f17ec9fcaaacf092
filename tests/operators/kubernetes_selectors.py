"""Label and field selectors as the API server reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_SET = re.compile(r"^(?P<key>\S+)\s+(?P<op>in|notin)\s+\((?P<values>[^)]*)\)$")


def label_match(selector: str, labels: dict[str, str]) -> bool:
    """Whether these labels meet every requirement of the selector; ``ValueError`` for one that cannot be read."""
    return all(_requirement(part, labels) for part in _split(selector))


def field_match(selector: str, found: dict[str, Any]) -> bool:
    """Whether the object's fields, such as ``metadata.name``, have the values asked for."""
    for part in filter(None, selector.split(",")):
        path, negated, value = re.split(r"(!=|==|=)", part, maxsplit=1)
        if (str(_field(found, path)) == value) is (negated == "!="):
            return False
    return True


def _split(selector: str) -> Iterator[str]:
    # A comma inside parentheses separates values, not requirements.
    yield from (part.strip() for part in re.split(r",(?![^(]*\))", selector) if part.strip())


def _requirement(part: str, labels: dict[str, str]) -> bool:
    if by_set := _SET.match(part):
        among = labels.get(by_set["key"]) in {value.strip() for value in by_set["values"].split(",")}
        # As with "!=", a label that is missing is not among any values.
        return among if by_set["op"] == "in" else not among
    if "!=" in part:
        key, value = part.split("!=", 1)
        return labels.get(key) != value
    if "=" in part:
        key, value = re.split("==?", part, maxsplit=1)
        return labels.get(key) == value
    if part.startswith("!"):
        return part[1:] not in labels
    if re.search(r"\s", part):
        raise ValueError(f"unable to parse requirement: {part}")
    return part in labels


def _field(found: Any, path: str) -> Any:
    for name in path.split("."):
        found = found.get(name, "") if isinstance(found, dict) else ""
    return found
