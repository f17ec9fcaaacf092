"""A deadline for a block of asynchronous code, on every Python."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 11):
    from asyncio import timeout as deadline
else:
    # Not asyncio.wait_for: that of 3.10 can swallow a cancellation.
    from async_timeout import timeout as deadline  # type: ignore[import-not-found,unused-ignore]

__all__ = ["deadline"]
