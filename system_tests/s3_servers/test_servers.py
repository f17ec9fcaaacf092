"""The servers keep to this machine."""

from __future__ import annotations

from socket import SOCK_DGRAM

import psutil

from airflow_state_watchers.demo.servers import S3Server


def test_it_listens_on_loopback_alone_and_calls_nobody(server: S3Server, bucket: str) -> None:
    server.put(bucket, "k")
    main = psutil.Process(server.pid)
    sockets = [found for each in (main, *main.children(recursive=True)) for found in each.net_connections("inet")]
    listening = [found for found in sockets if found.status == psutil.CONN_LISTEN or found.type == SOCK_DGRAM]
    assert {found.laddr.ip for found in listening} == {"127.0.0.1"}
    peers = [tuple(found.raddr) for found in sockets]  # empty without a peer
    assert {peer[0] for peer in peers if peer} <= {"127.0.0.1"}
