"""What an inbox asks of Airflow inside a running task: the questions as Airflow's own classes put them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from airflow.sdk import DAG, Asset, task
from airflow.sdk.api.datamodels._generated import AssetEventResponse, AssetResponse, DagRunState, TaskInstanceState
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import comms
from airflow.sdk.execution_time.context import InletEventsAccessors, set_current_context
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from airflow_state_watchers import Inbox, InboxError
from airflow_state_watchers.core.takes import Holder
from airflow_state_watchers.tasks.airflow_task import surroundings_in_task
from airflow_state_watchers.tasks.doubles import InMemoryAirflow
from tests.tasks.sender import ORDERS, START, Sender


class Supervisor:
    """Records what is sent to Airflow and answers with ``answers`` by message type."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.answers: dict[type[Any], Any] = {}

    def send(self, msg: Any) -> Any:
        self.sent.append(msg)
        answer = self.answers.get(type(msg))
        if isinstance(answer, comms.ErrorResponse) and answer.error == ErrorType.API_SERVER_ERROR:
            raise AirflowRuntimeError(answer)
        return answer(msg) if callable(answer) else answer


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    fake = Supervisor()
    with patch("airflow.sdk.execution_time.task_runner.SUPERVISOR_COMMS", fake, create=True):
        yield fake


def context(*, inlets: list[Any] | None = None, max_active_runs: int = 1, consumed: list[Any] | None = None) -> Any:
    with DAG("load_orders", max_active_runs=max_active_runs) as dag:

        @task(inlets=[ORDERS] if inlets is None else inlets, retries=2)
        def load() -> list[Any]:
            return []

        @task
        def copy(obj: Any) -> None: ...

        copy.expand(obj=load())
    operator = dag.get_task("load")
    ti = SimpleNamespace(
        dag_id="load_orders",
        run_id="run+1",
        task_id="load",
        map_index=-1,
        max_tries=2,
        try_number=1,
        task=operator,
        get_task_states=RuntimeTaskInstance.get_task_states,
        get_dagrun_state=RuntimeTaskInstance.get_dagrun_state,
    )
    return {
        "ti": ti,
        "dag": dag,
        "inlets": operator.inlets,
        "inlet_events": InletEventsAccessors(operator.inlets),
        "dag_run": SimpleNamespace(consumed_asset_events=consumed or []),
    }


def test_outside_a_task_it_says_so() -> None:
    with pytest.raises(InboxError, match=r"Inbox\(orders\) can be opened only while a task runs"):
        Inbox(ORDERS).__enter__()


def test_an_asset_that_is_no_inlet_is_refused_with_the_line_to_write() -> None:
    with (
        set_current_context(context(inlets=[])),
        pytest.raises(InboxError) as raised,
    ):
        Inbox(ORDERS).__enter__()
    assert str(raised.value) == (
        "task load_orders.load does not list asset 'orders' in its inlets, so Airflow hides its events from it. "
        "Write @task(inlets=[orders])."
    )


def test_a_dag_that_may_overlap_itself_is_refused() -> None:
    with set_current_context(context(max_active_runs=16)), pytest.raises(InboxError) as raised:
        Inbox(ORDERS).__enter__()
    assert str(raised.value) == (
        "DAG 'load_orders' may run 16 times at once; two runs would process the same items. Set max_active_runs=1, or "
        "Inbox(orders, allow_overlap=True) if repeats are harmless."
    )


def test_the_opener_is_the_task_instance() -> None:
    event = SimpleNamespace(
        asset=SimpleNamespace(name="orders", uri=ORDERS.uri),
        timestamp=START,
        extra={"payload": Sender(InMemoryAirflow()).payload(["a"], batch_id="b1")},
    )
    other = SimpleNamespace(asset=SimpleNamespace(name="other", uri="s3://other"), timestamp=START, extra=event.extra)
    foreign = SimpleNamespace(asset=event.asset, timestamp=START, extra={})
    with set_current_context(context(consumed=[event, other, foreign])):
        place = surroundings_in_task(ORDERS)
    assert place.asset == "orders"
    assert place.opener.holder == Holder("load_orders", "run+1", "load", -1)
    assert (place.opener.max_tries, place.opener.retries, place.opener.max_active_runs) == (2, 2, 1)
    assert place.opener.triggered_by == ((START, "b1"),)
    assert place.mapped_over
    assert place.task_ids == frozenset({"load", "copy"})
    assert place.max_map_length == 1024


def test_a_page_is_one_question(supervisor: Supervisor) -> None:
    payload = Sender(InMemoryAirflow()).payload(["a"])
    asset = AssetResponse(name="orders", uri=ORDERS.uri, group="asset", extra=None)
    supervisor.answers[comms.GetAssetEventByAsset] = comms.AssetEventsResult(
        asset_events=[
            AssetEventResponse(id=7, timestamp=START, asset=asset, created_dagruns=[], extra={"payload": payload}),
            AssetEventResponse(id=8, timestamp=START, asset=asset, created_dagruns=[], extra={"by": "hand"}),
        ]
    )
    with set_current_context(context()):
        log = surroundings_in_task(ORDERS).log
    found = log.page(after=START, before=None, limit=20)
    assert [(raw.id, raw.time, raw.payload) for raw in found] == [(7, START, payload), (8, START, None)]
    log.page(after=None, before=START, limit=1, ascending=False)
    first, second = supervisor.sent
    assert (first.name, first.uri, first.after, first.before, first.limit, first.ascending) == (
        "orders",
        ORDERS.uri,
        START,
        None,
        20,
        True,
    )
    assert (second.after, second.before, second.limit, second.ascending) == (None, START, 1, False)


@pytest.mark.parametrize(
    ("inlet", "named"),
    [
        (ORDERS, ORDERS),
        (ORDERS, Asset.ref(name="orders")),
        (ORDERS, Asset.ref(uri=ORDERS.uri)),
        (Asset.ref(name="orders"), ORDERS),
        (Asset.ref(uri=ORDERS.uri), ORDERS),
    ],
)
def test_an_asset_and_a_reference_to_it_are_the_same(supervisor: Supervisor, inlet: Any, named: Any) -> None:
    found = comms.AssetResult(name="orders", uri=ORDERS.uri, group="asset", extra=None)
    supervisor.answers |= {comms.GetAssetByName: found, comms.GetAssetByUri: found}
    with set_current_context(context(inlets=[Asset("other"), inlet])):
        place = surroundings_in_task(named)
    assert place.asset in ("orders", ORDERS.uri)


def test_the_state_is_the_assets(supervisor: Supervisor) -> None:
    supervisor.answers[comms.GetAssetStateStoreByName] = comms.AssetStateStoreResult(value={"v": 1})
    with set_current_context(context()):
        state = surroundings_in_task(ORDERS).state
    assert state.load("key") == {"v": 1}
    assert state.save("key", {"v": 2})
    get, put = supervisor.sent
    assert (get.name, get.key) == ("orders", "key")
    assert (put.name, put.key, put.value) == ("orders", "key", {"v": 2})


def test_what_is_not_stored_is_none_and_an_inactive_asset_is_told(supervisor: Supervisor) -> None:
    with set_current_context(context()):
        state = surroundings_in_task(ORDERS).state
    supervisor.answers[comms.GetAssetStateStoreByName] = comms.ErrorResponse(error=ErrorType.ASSET_STORE_NOT_FOUND)
    assert state.load("key") is None
    refused = comms.ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": 404})
    supervisor.answers[comms.SetAssetStateStoreByName] = refused
    assert not state.save("key", {})
    broken = comms.ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": 500})
    supervisor.answers[comms.SetAssetStateStoreByName] = broken
    with pytest.raises(AirflowRuntimeError):
        state.save("key", {})


def test_copies_are_xcoms_of_any_run_of_the_task(supervisor: Supervisor) -> None:
    with set_current_context(context()):
        copies = surroundings_in_task(ORDERS).copies
    supervisor.answers[comms.GetXComSequenceSlice] = comms.XComSequenceSliceResult(root=[{"v": 1}])
    assert list(copies.find("key")) == [{"v": 1}]
    assert copies.keep("key", Holder("load_orders", "r0", "load", 3), {"v": 2})
    supervisor.answers[comms.GetXCom] = comms.XComResult(key="key", value={"v": 2})
    copies.drop("key", Holder("load_orders", "r0", "load", 3))
    slice_, put, _, delete = supervisor.sent
    assert (slice_.run_id, slice_.task_id, slice_.include_prior_dates) == ("run+1", "load", True)
    assert (put.run_id, put.map_index, put.value) == ("r0", 3, {"v": 2})
    assert (delete.run_id, delete.map_index, delete.key) == ("r0", 3, "key")


def test_a_copy_beside_a_run_that_is_gone_is_told(supervisor: Supervisor) -> None:
    with set_current_context(context()):
        copies = surroundings_in_task(ORDERS).copies
    gone = comms.ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": 404})
    supervisor.answers |= {comms.SetXCom: gone, comms.GetXCom: gone}
    assert not copies.keep("key", Holder("load_orders", "r0", "load"), {})
    copies.drop("key", Holder("load_orders", "r0", "load"))
    supervisor.answers[comms.GetXComSequenceSlice] = comms.XComSequenceSliceResult(root=[])
    assert not list(copies.find("key"))


def test_states_are_asked_run_by_run_and_read_by_map_index(supervisor: Supervisor) -> None:
    def answer(message: Any) -> Any:
        return comms.TaskStatesResult(task_states={run: {"copy_7": None, "copy": "success"} for run in message.run_ids})

    supervisor.answers[comms.GetTaskStates] = answer
    with set_current_context(context()):
        tasks = surroundings_in_task(ORDERS).tasks
    runs = {f"r{number}" for number in range(60)}
    states = tasks.states("load_orders", "copy", runs)
    assert states["r5"] == {7: None, -1: "success"}
    assert set(states) == runs
    assert [len(message.run_ids) for message in supervisor.sent] == [50, 10], "a URL has an end"
    assert {tuple(message.task_ids) for message in supervisor.sent} == {("copy",)}


def test_a_task_whose_name_ends_like_a_map_index_is_not_confused(supervisor: Supervisor) -> None:
    supervisor.answers[comms.GetTaskStates] = comms.TaskStatesResult(
        task_states={"r1": {"copy_1": TaskInstanceState.FAILED, "copy_1_0": "success"}}
    )
    with set_current_context(context()):
        assert surroundings_in_task(ORDERS).tasks.states("d", "copy_1", {"r1"}) == {"r1": {-1: "failed", 0: "success"}}


@pytest.mark.parametrize(
    ("state", "finished"), [("success", True), ("failed", True), ("running", False), ("queued", False)]
)
def test_a_run_is_finished_or_not(supervisor: Supervisor, state: str, finished: bool) -> None:
    supervisor.answers[comms.GetDagRunState] = comms.DagRunStateResult(state=DagRunState(state))
    with set_current_context(context()):
        assert surroundings_in_task(ORDERS).tasks.run_finished("load_orders", "r1") is finished


def test_the_clock_is_aware() -> None:
    with set_current_context(context()):
        now = surroundings_in_task(ORDERS).now()
    assert abs((datetime.now(timezone.utc) - now).total_seconds()) < 60
