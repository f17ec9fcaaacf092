"""Which objects of a listing are wanted."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_state_watchers.exceptions import WatcherArgumentError


def _any_key(key: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Which objects are wanted: by a glob on the whole key or a regular expression matched from its beginning, and by size.

    Patterns read as in the Amazon provider's ``S3KeySensor``; the glob minds case on every system. Raises
    :class:`WatcherArgumentError` for a ``key_pattern`` that is no regular expression.
    """

    key_pattern: str | None = None
    use_regex: bool = False
    min_size: int = 0
    _match: Callable[[str], object] = field(init=False, repr=False, compare=False, default=_any_key)

    def __post_init__(self) -> None:
        if self.key_pattern is None:
            return
        pattern = self.key_pattern if self.use_regex else fnmatch.translate(self.key_pattern)
        try:
            object.__setattr__(self, "_match", re.compile(pattern).match)
        except (re.error, OverflowError, RecursionError) as error:
            raise WatcherArgumentError(
                f"key_pattern={self.key_pattern!r} is no regular expression: {error}. Correct it, or use_regex=False for a glob."
            ) from error

    def accepts(self, key: str, size: int) -> bool:
        """Say whether an object with this key and this many bytes is wanted."""
        return size >= self.min_size and bool(self._match(key))
