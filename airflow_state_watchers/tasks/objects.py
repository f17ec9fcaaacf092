"""The objects that an S3 watcher found, typed.

``S3Object`` passes through XCom, and so through ``.expand()``, as itself. Airflow's default configuration lets only its
own classes be read back from XCom, so importing this module allows this one for the process it is imported in; the
package's plugin (:mod:`airflow_state_watchers.tasks.plugin`) imports it in every task's process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from airflow.sdk.serde import allow_class


@dataclass(frozen=True, slots=True)
class S3Object:
    """One version of one object, as listed.

    ``etag`` has no quotes; ``last_modified`` is aware; ``version_id`` is ``None`` where the watcher does not know it.
    As text it is its URI, so that templates can use it as it is.
    """

    bucket: str
    key: str
    size: int
    etag: str
    last_modified: datetime
    version_id: str | None = None

    __version__: ClassVar[int] = 1

    @property
    def uri(self) -> str:
        """``s3://bucket/key``. The key is not quoted: this is the object's exact name."""
        return f"s3://{self.bucket}/{self.key}"

    def __str__(self) -> str:
        return self.uri

    def serialize(self) -> dict[str, Any]:
        """Return the JSON-plain form that Airflow stores in XCom."""
        return {
            "bucket": self.bucket,
            "key": self.key,
            "size": self.size,
            "etag": self.etag,
            "last_modified": self.last_modified.isoformat(),
            "version_id": self.version_id,
        }

    @staticmethod
    def deserialize(data: dict[str, Any], version: int) -> S3Object:
        """Read :meth:`serialize`'s form; Airflow calls it with the version that wrote it."""
        if version > S3Object.__version__:
            raise TypeError(f"this S3Object was written by a newer release (version {version}); upgrade this one")
        return S3Object(**{**data, "last_modified": datetime.fromisoformat(data["last_modified"])})

    @classmethod
    def from_item(cls, item: Mapping[str, Any], bucket: str) -> S3Object:
        """Read one of an event's items."""
        return cls(
            bucket=bucket,
            key=item["key"],
            size=item["size"],
            etag=item["etag"],
            last_modified=datetime.fromisoformat(item["last_modified"]),
            version_id=item.get("version_id"),
        )


allow_class(S3Object)
