"""S3 servers that need an environment of their own, because they pin other versions than Airflow does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import httpx

from airflow_state_watchers.demo.servers import ACCESS_KEY, SECRET_KEY, S3Server

CHECKOUT = Path(__file__).parents[2]


class ForeignServer(S3Server):
    """A server that ``make s3-servers`` has installed into :attr:`venv`. It listens on 127.0.0.1 and keeps nothing."""

    venv: ClassVar[str]
    health: ClassVar[str]
    """The path that answers with 200 once the server is ready; it accepts connections before it is."""

    def program(self, port: int) -> Sequence[str]:
        raise NotImplementedError

    def settings(self, port: int) -> Mapping[str, str]:
        raise NotImplementedError

    def command(self, port: int) -> Sequence[str]:
        program, *arguments = self.program(port)
        path = CHECKOUT / self.venv / "bin" / program
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist; make s3-servers installs it")
        home = self._directory.name
        # Nothing of the caller's environment: these servers read settings, credentials and proxies from it.
        surroundings = {"PATH": f"{path.parent}:/usr/bin:/bin", "HOME": home, "TMPDIR": home, **self.settings(port)}
        return ["env", "-i", *(f"{name}={value}" for name, value in surroundings.items()), str(path), *arguments]

    def _answers(self) -> bool:
        try:
            return httpx.get(self.endpoint_url + self.health, timeout=5, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False


class MiniStack(ForeignServer):
    venv = ".venv-ministack"
    health = "/_ministack/health"

    def program(self, port: int) -> Sequence[str]:
        # Its own command listens on all addresses.
        return ["hypercorn", "ministack.app:app", "--bind", f"127.0.0.1:{port}"]

    def settings(self, port: int) -> Mapping[str, str]:
        return {
            "SERVICES": "s3",
            "GATEWAY_PORT": str(port),
            "S3_DATA_DIR": f"{self._directory.name}/s3",
            "STATE_DIR": f"{self._directory.name}/state",
            # Of the three it is the one that can look at signatures.
            "AUTH": "true",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        }


class LocalStack(ForeignServer):
    venv = ".venv-localstack"
    health = "/_localstack/health"

    def program(self, port: int) -> Sequence[str]:
        return ["python", str(Path(__file__).with_name("localstack_server.py")), f"{self._directory.name}/objects"]

    def settings(self, port: int) -> Mapping[str, str]:
        return {
            "SERVICES": "s3",
            "EAGER_SERVICE_LOADING": "1",
            "GATEWAY_LISTEN": f"127.0.0.1:{port}",
            "GATEWAY_SERVER": "hypercorn",
            "LOCALSTACK_VOLUME_DIR": f"{self._directory.name}/volume",
            # It talks to nobody: no telemetry, no certificate, no name server of its own.
            "DISABLE_EVENTS": "1",
            "SKIP_SSL_CERT_DOWNLOAD": "1",
            "DNS_ADDRESS": "0",
        }
