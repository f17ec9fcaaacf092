from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.operators.job_service import JobService


@pytest.fixture
def service() -> Iterator[JobService]:
    with JobService() as service:
        yield service
