"""Steps that the fake cluster takes when the operator asks something, since no time passes in a test by itself."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.operators.kubernetes_api import KubernetesApi

LOG = "GET .*/log"
STATUS = r"GET .*/pods/[\w-]+$"
CREATE = r"POST .*/pods$"

Step = Callable[[str], None]


def on(kube: KubernetesApi, match: str, *steps: Step) -> None:
    """Take the next step, with the newest pod's name, each time that a request of this kind has been carried out."""
    left = list(steps)

    def done(request: str) -> None:
        if left and re.search(match, request) and kube.cluster.names():
            left.pop(0)(kube.cluster.newest())

    kube.on_done = done


def always(kube: KubernetesApi, match: str, step: Step) -> None:
    """Take this step each time."""
    on(kube, match, *[step] * 100)


def finished(kube: KubernetesApi, *, code: int = 0, xcom: str | None = None) -> Step:
    """The pod runs and ends; with an XCom, its sidecar waits until that was fetched."""

    def step(name: str) -> None:
        kube.cluster.run(name)
        if xcom is None:
            kube.cluster.complete(name, code=code)
        else:
            kube.cluster.write_xcom(name, xcom)
            kube.cluster.finish(name, code=code)

    return step
