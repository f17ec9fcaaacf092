"""What a DAG's tasks call: the inbox that reads a watcher's events, and their typed form."""
