"""Where a source looks, and how it gets there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Place:
    """A prefix of a bucket, and the arguments of the Amazon provider's hook. ``timeout``: seconds for one call.

    ``argument`` is what people set to choose the bucket.
    """

    bucket: str
    prefix: str
    aws_conn_id: str | None
    region_name: str | None
    verify: bool | str | None
    botocore_config: Mapping[str, Any] | None = field(repr=False)
    timeout: float
    argument: str = "bucket_name"

    @property
    def uri(self) -> str:
        """The place for people: what every message about it begins with."""
        return f"s3://{self.bucket}/{self.prefix}"

    @property
    def arn(self) -> str:
        """What a policy names: the bucket's ARN, or the access point's if that is what ``bucket`` is."""
        return self.bucket if self.bucket.startswith("arn:") else f"arn:aws:s3:::{self.bucket}"

    @property
    def connection(self) -> str:
        """The connection for people."""
        return f"connection {self.aws_conn_id!r}" if self.aws_conn_id else "the machine (aws_conn_id=None)"
