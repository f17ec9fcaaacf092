"""What a stored root means to the process that looks at it."""

from __future__ import annotations

from enum import Enum

from airflow_state_watchers.core.codec import AnyCheckpoint, Root, Writer


class Verdict(Enum):
    FIRST = "nothing was ever stored, or all of it was lost and nobody remembers"
    UNCHANGED = "this process wrote it last"
    ADOPT = "another process wrote it and has come at least as far: go on from there"
    STALE = "another process wrote it and is behind: write over it"
    MOVED = "a person set the watermark: begin a new generation there"
    RESET = "a person deleted the root: begin a new generation by the start policy"
    LOST = "the state is gone with its marker, and this process remembers it: write it back"


def judge(root: Root | None, *, marked: bool, mine: AnyCheckpoint | None, by: str) -> Verdict:
    """Decide, from the stored root (``None``: no such key), whether its marker is there, this process's memory and its
    own sign ``by``.

    A second triggerer, frozen for a while or running beside this one, writes with its own ``by`` and an intact seal, so it
    is never taken for a person; what it stored is adopted forward only.
    """
    if root is None:
        if marked:
            return Verdict.RESET
        return Verdict.FIRST if mine is None else Verdict.LOST
    if root.writer is Writer.PERSON:
        return Verdict.MOVED
    stored = root.checkpoint
    if mine is None:
        return Verdict.ADOPT
    if (stored.by, stored.n) == (mine.by, mine.n):
        return Verdict.UNCHANGED
    if stored.by == by:
        # An older write of this very process has come back: somebody restored a copy.
        return Verdict.MOVED if stored.n < mine.n else Verdict.UNCHANGED
    return Verdict.STALE if stored.is_behind(mine) else Verdict.ADOPT
