"""Pure values and decisions about progress.

Nothing here imports Airflow, a client library, asyncio, logging or a clock: time comes in as an argument. Everything a
watcher may lose, repeat or reorder is decided in this package, and its laws are tested without any server.
"""
