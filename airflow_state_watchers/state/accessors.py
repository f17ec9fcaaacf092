"""How a trigger finds the assets it watches, and their state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from airflow_state_watchers.ports import StateStore


def watched_assets(collection: Any) -> Mapping[str, StateStore]:
    """Return the state store of each asset on a trigger's row, by asset name.

    Airflow 3.3 sets one collection for all assets that share a trigger row. It can be subscripted but not listed, so its
    own mapping is read here, in this one place. ``None`` (a trigger that nobody watches) gives no asset.
    """
    if collection is None:
        return {}
    return cast("Mapping[str, StateStore]", dict(collection._by_name))
