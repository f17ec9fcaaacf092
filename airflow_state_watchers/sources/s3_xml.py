"""The XML of a listing, read by columns: all keys, then all times, and so on.

libxml2 reads a page without holding the interpreter, and gives each column as one list of text, without an object for each
element. What comes out is what botocore's reader would give (tests/sources/test_s3_xml.py compares the two).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, cast

Read = tuple[dict[str, str], list[list[str]]]
"""The text of a result's own children by name, and a list for each column of its entries."""


def read_result(
    body: bytes, root: str, entry: str, columns: Sequence[str], optional: Sequence[str] = ()
) -> Read | None:
    """Read a listing's body: the children of its ``root``, and ``columns`` of each ``entry``; ``optional`` ones may be empty.

    ``None`` for another root, a body that is not whole, an entry that lacks a column, or no word on whether it goes on.
    """
    from lxml import etree  # here, as DAG files import the modules above this one

    parser = etree.XMLParser(
        encoding="utf-8", resolve_entities=False, no_network=True, remove_comments=True, remove_pis=True
    )
    try:
        tree = etree.fromstring(body, parser)
    except (etree.XMLSyntaxError, ValueError):
        return None
    name = etree.QName(tree)
    if name.localname != root:
        return None
    space = name.namespace or ""
    result = {
        etree.QName(child).localname: child.text or "" for child in _path(f"*[not(self::{{}}{entry})]", space)(tree)
    }
    if result.get("IsTruncated") not in ("true", "false"):
        return None
    entries = int(_path(f"count({{}}{entry})", space)(tree))
    read = [_column(tree, space, entry, column, entries, empty=column in optional) for column in (*columns, *optional)]
    return (result, cast("list[list[str]]", read)) if all(column is not None for column in read) else None


def _column(tree: Any, space: str, entry: str, column: str, entries: int, *, empty: bool) -> list[str] | None:
    """Return the text of one child of each entry; ``None`` if one lacks it, unless it may be empty."""
    if int(_path(f"count({{}}{entry}/{{}}{column})", space)(tree)) == entries:
        texts = cast("list[str]", _path(f"{{}}{entry}/{{}}{column}/text()", space)(tree))
        if len(texts) == entries:
            return texts
    children = _path(f"{{}}{column}", space)
    found = [children(each) for each in _path(f"{{}}{entry}", space)(tree)]
    if not empty and not all(found):
        return None
    return ["".join(each[-1].itertext()) if each else "" for each in found]


@cache
def _path(path: str, space: str) -> Any:
    """Compile a path, in which ``{}`` stands for the prefix of the namespace, if the result has one."""
    from lxml import etree

    spaces = {"s3": space} if space else None
    return etree.XPath(
        path.format(*["s3:" if space else ""] * path.count("{}")), namespaces=spaces, smart_strings=False
    )
