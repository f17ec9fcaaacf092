"""The rows of a window as data frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow_state_watchers.tasks.refusal import InboxRefusal
from airflow_state_watchers.tasks.window_rows import pages_of

if TYPE_CHECKING:
    from airflow_state_watchers.tasks.windows import DfType, SqlWindow, Upper

Make: TypeAlias = Callable[[Any, Sequence[str], Sequence[tuple[Any, ...]]], Any]


def frames_of(window: SqlWindow, chunksize: int, df_type: DfType, upper: Upper) -> Iterator[Any]:
    """See :meth:`SqlWindow.frames`. Refuses at once, before anything is read, what cannot be made."""
    if df_type not in _MAKERS:
        raise InboxRefusal(f"df_type={df_type!r} is none of {', '.join(map(repr, _MAKERS))}.")
    module, make = _MAKERS[df_type]
    try:
        library = import_module(module)
    except ImportError:
        raise InboxRefusal(
            f"{window}: frames(df_type={df_type!r}) needs {module}, which is not installed where this task runs. "
            f"pip install {module}, or read with rows()."
        ) from None
    pages = pages_of(window, chunksize, upper)
    return (_made(window, df_type, partial(make, library, *page)) for page in pages)


def _made(window: SqlWindow, df_type: DfType, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # how Polars' Rust fails
            raise
        raise InboxRefusal(
            f"{window}: these rows make no {df_type} frame: {error}. Read them with rows(), leave a column out (columns=... of the "
            "watcher), or cast it in sql=..."
        ) from error


def _pandas(library: Any, names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> Any:
    return library.DataFrame.from_records(rows, columns=list(names))


def _polars(library: Any, names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> Any:
    # Types are inferred from all rows: from the first 100 a column that begins with NULLs would not hold what follows. And from
    # rows, though columns are faster: from columns Polars drops the fields of a JSON object that the first one does not have.
    return library.DataFrame(rows, schema=list(names), orient="row", infer_schema_length=None)


def _arrow(library: Any, names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> Any:
    return library.table(list(zip(*rows, strict=True)), names=list(names))


_MAKERS: dict[str, tuple[str, Make]] = {
    "pandas": ("pandas", _pandas),
    "polars": ("polars", _polars),
    "arrow": ("pyarrow", _arrow),
}
