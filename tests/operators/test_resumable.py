"""The mixin: what it refuses, what it says, and what its hooks can rely on."""

from __future__ import annotations

import re
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import BaseOperator
from airflow.sdk import ResumableJobMixin as UpstreamMixin
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.execution_time import comms
from airflow.sdk.observability import stats

from airflow_state_watchers import JobError, JobFailed, JobGone, JobStatusTimeout, ResumableJobMixin
from airflow_state_watchers.operators.stopping import ToldToStop
from airflow_state_watchers.testing import JobHarness
from tests.operators.logs import listen


class Job(ResumableJobMixin, BaseOperator):
    """A job in memory; ``says`` is what its looks say, one after the other, the last one for ever."""

    job_id: Any = "j"
    says: Any = ("DONE",)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.submitted: list[str] = []
        self.attached: list[Any] = []
        self.cancelled: list[Any] = []
        self.looks: list[Any] = []

    def execute(self, context: Any) -> Any:
        return ["executed", self.execute_resumable(context)]

    def submit_job(self, context: Any) -> Any:
        self.submitted.append(self.job_token)
        return self.job_id

    def get_job_status(self, external_id: Any, context: Any) -> str:
        said = self.says[min(len(self.looks), len(self.says) - 1)]
        self.looks.append(external_id)
        if isinstance(said, BaseException):
            raise said
        return said  # type: ignore[no-any-return]

    def is_job_active(self, status: str) -> bool:
        return status == "RUNNING"

    def is_job_succeeded(self, status: str) -> bool:
        return status == "DONE"

    def on_job_attached(self, external_id: Any, context: Any) -> None:
        self.attached.append(external_id)


class Cancellable(Job):
    def cancel_job(self, external_id: Any, context: Any) -> None:
        self.cancelled.append(external_id)


def job(kind: type[Job] = Job, *, retries: int = 2, **attributes: Any) -> Job:
    operator = kind(task_id="job", retries=retries)
    for name, value in attributes.items():
        setattr(operator, name, value)
    return operator


def test_it_is_upstreams_class_too() -> None:
    assert issubclass(ResumableJobMixin, UpstreamMixin)
    assert ResumableJobMixin.external_id_key == UpstreamMixin.external_id_key


def test_swapped_bases_are_refused_where_the_class_is_written() -> None:
    with pytest.raises(TypeError, match=re.escape("Write class Swapped(ResumableJobMixin, ...)")):
        type("Swapped", (BaseOperator, ResumableJobMixin), {})


@pytest.mark.parametrize(
    ("policy", "value", "told"),
    [
        ("on_clear", "again", "Wrong.on_clear = 'again': give 'rerun' or 'reuse'"),
        ("wait", True, "give 'poll' or 'reschedule'"),
        ("cancel_on_kill", "yes", "give True or False"),
        ("max_resubmits", -1, "a whole number of at least 0"),
        ("max_resubmits", 1.5, "a whole number of at least 0"),
        ("status_interval", "30", "seconds or a timedelta"),
        ("status_timeout", -1, "seconds or a timedelta"),
        ("adopt_wait", float("nan"), "seconds or a timedelta"),
        ("adopt_wait", True, "seconds or a timedelta"),
    ],
)
def test_a_wrong_policy_is_named_where_the_class_is_written(policy: str, value: Any, told: str) -> None:
    with pytest.raises(JobError, match=told):
        type("Wrong", (Job,), {policy: value})


def test_a_wrong_policy_of_an_instance_is_named_when_it_runs() -> None:
    with pytest.raises(JobError, match=r"Job\.status_interval = None"):
        JobHarness(job(status_interval=None)).run()


def test_a_policy_may_be_a_property_of_the_operator() -> None:
    class Own(Job):
        @property
        def status_interval(self) -> Any:  # type: ignore[override]
            return self.interval

        interval: Any = 7

    harness = JobHarness(Own(task_id="job"))
    harness.run()
    wrong = Own(task_id="job")
    wrong.interval = "x"
    with pytest.raises(JobError, match=r"Own\.status_interval = 'x'"):
        JobHarness(wrong).run()


def test_policies_take_seconds_and_timedeltas() -> None:
    harness = JobHarness(job(says=("RUNNING", "RUNNING", "DONE"), status_interval=timedelta(minutes=2)))
    harness.run()
    assert harness.clock.sleeps == [120, 120]


def test_the_first_line_of_every_run_has_token_and_decision() -> None:
    operator = job(says=("RUNNING", "DONE"))
    harness = JobHarness(operator)
    for _ in range(2):
        lines = listen(operator)
        harness.run()
        assert re.match(r"resumable: token=[0-9a-f-]{36}, decision=(SUBMIT|COLLECT), ", lines.lines[0])


def test_a_token_fits_headers_tags_and_labels() -> None:
    operator = job()
    JobHarness(operator).run()
    assert re.fullmatch(r"[0-9a-f-]{36}", operator.submitted[0])


def test_retries_0_is_said_once_and_only_then() -> None:
    for retries in (0, 1):
        operator = job(retries=retries, says=(OSError("x"), "DONE"))
        lines = listen(operator)
        JobHarness(operator).run()
        assert len(lines.having("this task has retries=0")) == 1 - retries


@pytest.mark.parametrize("job_id", [0, "", False, [], {"cluster": "c", "id": 5}])
def test_any_json_but_none_is_an_id(job_id: Any) -> None:
    operator = job(job_id=job_id, says=("RUNNING", "DONE"))
    harness = JobHarness(operator)
    harness.run(crash_at="after get_job_status")
    assert harness.retry() == ["executed", None]
    assert len(operator.submitted) == 1
    assert operator.attached == operator.looks == [job_id, job_id]
    assert harness.store.get("remote_job_id") == job_id


def test_without_an_id_nothing_is_stored_and_it_is_said() -> None:
    operator = job(job_id=None)
    lines = listen(operator)
    harness = JobHarness(operator)
    assert harness.run() == ["executed", None]
    assert "submit_job returned no id" in lines
    assert harness.store.get("remote_job_id") is None
    harness.retry()
    assert len(set(operator.submitted)) == 1


def test_a_job_is_attached_once_in_every_try() -> None:
    operator = job(says=("RUNNING", "RUNNING", "DONE"))
    harness = JobHarness(operator)
    harness.run(crash_at="after get_job_status")
    harness.retry()
    harness.retry()
    assert operator.attached == ["j", "j", "j"]
    assert len(operator.submitted) == 1


def test_durable_false_is_upstreams() -> None:
    operator = Job(task_id="job", durable=False)
    harness = JobHarness(operator)
    assert harness.run() == ["executed", None]
    harness.run()
    assert len(set(operator.submitted)) == 2
    assert operator.attached == ["j", "j"]
    assert harness.store.values == {}


def test_without_a_store_it_runs_and_says_so() -> None:
    operator = job()
    lines = listen(operator)
    harness = JobHarness(operator)
    harness.context["task_state_store"] = None
    assert harness.run() == ["executed", None]
    assert "no task state store" in lines


@pytest.mark.parametrize("mistake", [TypeError, AttributeError, NameError, ImportError, NotImplementedError])
def test_a_mistake_in_a_look_up_is_raised_at_once_and_the_id_is_kept(mistake: type[Exception]) -> None:
    operator = job(says=("RUNNING", mistake("oops"), "DONE"))
    harness = JobHarness(operator)
    with pytest.raises(mistake, match="oops"):
        harness.run()
    assert len(operator.looks) == 2
    assert harness.retry() == ["executed", None]
    assert len(operator.submitted) == 1


@pytest.mark.parametrize("error", [OSError("reset"), KeyError("status"), ValueError("no JSON"), RuntimeError("503")])
def test_any_other_error_of_a_look_up_waits(error: Exception) -> None:
    operator = job(says=(error, "RUNNING", error, error, "DONE"))
    lines = listen(operator)
    JobHarness(operator).run()
    assert len(operator.submitted) == 1
    assert [line[-18:] for line in lines.having("cannot be looked up")] == [f"(look {n} in a row)." for n in (1, 1, 2)]


def test_no_status_is_no_failure() -> None:
    operator = job(says=(None, "RUNNING", None, "DONE"))
    lines = listen(operator)
    JobHarness(operator).run()
    assert len(operator.submitted) == 1
    assert len(lines.having("job 'j': get_job_status returned None. Waiting, not resubmitting")) == 2


def test_what_an_operator_tells_airflow_passes() -> None:
    with pytest.raises(AirflowFailException, match="enough"):
        JobHarness(job(says=(AirflowFailException("enough"),))).run()


def test_a_record_that_cannot_be_read_is_refused_with_the_way_out() -> None:
    operator = job()
    harness = JobHarness(operator)
    harness.run()
    harness.store.set("remote_job_id.resume", {"v": 9})
    with pytest.raises(
        JobError, match=r"task state 'remote_job_id.resume' cannot be read: its version is 9.*Delete this key"
    ):
        harness.retry()
    harness.store.delete("remote_job_id.resume")
    harness.retry()
    assert len(operator.submitted) == 1


def test_poll_until_complete_belongs_to_a_run() -> None:
    with pytest.raises(RuntimeError, match="execute_resumable"):
        job().poll_until_complete("j", {})


def test_own_polling_may_say_that_a_job_is_gone() -> None:
    class OwnPolling(Job):
        def poll_until_complete(self, external_id: Any, context: Any) -> None:
            if len(self.submitted) == 1:
                raise JobGone("404")

    operator = job(OwnPolling, says=(JobGone("404"),))
    JobHarness(operator).run()
    assert len(operator.submitted) == 2


def test_upstreams_counters_keep_their_names_and_ours_stand_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: Counter[str] = Counter()

    def incr(name: str, *args: Any, tags: dict[str, str], **kwargs: Any) -> None:
        assert tags["operator"] == "Job"
        counted[f"{name}:{tags['decision']}" if "decision" in tags else name] += 1

    monkeypatch.setattr(stats, "incr", incr)
    harness = JobHarness(job(says=("RUNNING", "RUNNING", "FAILED", "FAILED", "DONE", "DONE")))
    harness.run(crash_at="after get_job_status")
    with pytest.raises(JobError):
        harness.retry()
    harness.retry()
    harness.retry()
    assert counted == {
        "resumable_job.fresh_submit": 1,
        "resumable_job.reconnect_attempt": 3,
        "resumable_job.reconnect_success": 1,
        "resumable_job.terminal_resubmit": 1,
        "resumable_job.already_succeeded": 1,
        "resumable_job.decision:submit": 2,
        "resumable_job.decision:reattach": 1,
        "resumable_job.decision:collect": 1,
    }


# The request's identity


def test_the_identity_is_the_arguments_and_the_template_fields() -> None:
    class Request(Job):
        template_fields = ("query",)

        def __init__(self, *, query: str, limit: int, unkept: int = 0, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.query, self.limit = query, limit

    request = Request(task_id="job", query="SELECT 1", limit=5)
    assert request.job_identity({}) == {"query": "SELECT 1", "limit": 5}


@pytest.mark.parametrize(("policy", "asked"), [("rerun", 0), ("reuse", 2)])
def test_the_identity_is_asked_only_with_reuse(policy: str, asked: int) -> None:
    count: list[int] = []

    class Asked(Job):
        def job_identity(self, context: Any) -> Any:
            count.append(1)
            return {"a": 1}

    harness = JobHarness(job(Asked, on_clear=policy))
    harness.run()
    harness.clear()
    harness.run()
    assert len(count) == asked


# Told to stop


class Stopped(Cancellable):
    """Airflow's handler of SIGTERM calls ``on_kill`` in the middle of a hook."""

    stop_in = "get_job_status"

    def get_job_status(self, external_id: Any, context: Any) -> str:
        status = super().get_job_status(external_id, context)
        if self.stop_in == "get_job_status" and not self.cancelled:
            self.on_kill()
        return status

    def submit_job(self, context: Any) -> Any:
        if self.stop_in == "submit_job":
            self.on_kill()
        return super().submit_job(context)


@pytest.mark.parametrize("where", ["get_job_status", "submit_job"])
@pytest.mark.parametrize(
    ("state", "cancelled"),
    [
        ("failed", True),
        ("success", True),
        ("skipped", True),
        ("removed", True),
        ("restarting", True),
        ("running", False),
        ("up_for_retry", False),
        ("queued", False),
        ("scheduled", False),
        ("None", False),
    ],
)
def test_a_job_is_cancelled_only_if_the_server_says_that_the_try_is_over(
    where: str, state: str, cancelled: bool
) -> None:
    operator = job(Stopped, says=("RUNNING",), stop_in=where)
    harness = JobHarness(operator)
    harness.server_state = state
    with pytest.raises(ToldToStop):
        harness.run()
    assert operator.cancelled == (["j"] if cancelled else [])
    assert harness.store.get("remote_job_id") == "j", "the id is stored before the task is left"


def test_a_cleared_task_that_reuses_its_job_leaves_it_running() -> None:
    operator = job(Stopped, says=("RUNNING",), on_clear="reuse")
    harness = JobHarness(operator)
    harness.server_state = "restarting"
    with pytest.raises(ToldToStop):
        harness.run()
    assert operator.cancelled == []


class NeverCancelled(Stopped):
    cancel_job = Job.cancel_job


@pytest.mark.parametrize(("kind", "policy"), [(Stopped, False), (NeverCancelled, True)])
def test_a_job_that_is_not_to_be_cancelled_is_left(kind: type[Job], policy: bool) -> None:
    operator = job(kind, says=("RUNNING",), cancel_on_kill=policy)
    lines = listen(operator)
    harness = JobHarness(operator)
    harness.server_state = "failed"
    with pytest.raises(ToldToStop):
        harness.run()
    assert operator.cancelled == []
    assert "job 'j' is left running: it is not to be cancelled" in lines


def test_a_job_that_could_not_be_looked_at_yet_is_cancelled_too() -> None:
    class StoppedWaiting(Cancellable):
        def get_job_status(self, external_id: Any, context: Any) -> str:
            if len(self.looks) > 2:
                self.on_kill()
            return super().get_job_status(external_id, context)

    operator = job(StoppedWaiting, says=("RUNNING", OSError("down")))
    harness = JobHarness(operator)
    harness.run(crash_at="after get_job_status")
    harness.server_state = "failed"
    with pytest.raises(ToldToStop):
        harness.retry()
    assert operator.cancelled == ["j"]


def test_a_server_that_does_not_answer_leaves_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = job(Stopped, says=("RUNNING",))
    lines = listen(operator)
    harness = JobHarness(operator)
    monkeypatch.setattr("airflow_state_watchers.job_harness._TaskInstance.get_task_states", lambda self, **which: 1 / 0)
    with pytest.raises(ToldToStop):
        harness.run()
    assert operator.cancelled == []
    assert "the server did not say whether this try is over" in lines


def test_a_request_to_the_supervisor_is_not_left_halfway() -> None:
    """Its answer would be taken for the next one's."""

    class Asking(Job):
        def get_job_status(self, external_id: Any, context: Any) -> str:
            # A function with the globals of the module that talks to the supervisor.
            asks = eval("lambda told: [told(), answered.append(1)]", vars(comms) | {"answered": answered})  # noqa: S307
            asks(self.on_kill)
            return super().get_job_status(external_id, context)

    answered: list[int] = []
    operator = job(Asking, says=("RUNNING",))
    with pytest.raises(ToldToStop):
        JobHarness(operator).run()
    assert answered == [1]
    assert operator.looks == ["j"]


def test_a_kill_outside_of_a_run_does_nothing() -> None:
    """As after an ``execution_timeout``, when Airflow calls it with the task already left."""
    operator = job(Cancellable)
    operator.on_kill()
    JobHarness(operator).run()
    operator.on_kill()
    assert operator.cancelled == []


# Waiting elsewhere


def test_reschedule_gives_the_slot_back_between_two_looks() -> None:
    operator = job(says=("RUNNING",) * 6 + ("DONE",), wait="reschedule", status_interval=600)
    harness = JobHarness(operator)
    assert harness.run() == ["executed", None]
    assert len(operator.submitted) == 1
    assert harness.try_number == 1
    assert sum(harness.clock.sleeps) == pytest.approx(6 / 2 * 600, abs=5)


def test_reschedule_has_a_status_timeout_over_the_whole_try() -> None:
    operator = job(says=("RUNNING",), wait="reschedule", status_interval=600, status_timeout=3300)
    harness = JobHarness(operator)
    with pytest.raises(JobStatusTimeout):
        harness.run()
    assert sum(harness.clock.sleeps) == pytest.approx(3600, abs=5)


class Deferred(Job):
    def job_trigger(self, external_id: Any, context: Any) -> Any:
        return TimeDeltaTrigger(timedelta(seconds=5))


def test_a_triggers_event_only_wakes_the_task() -> None:
    operator = job(Deferred, says=("RUNNING",) * 5 + ("DONE",))
    harness = JobHarness(operator)
    assert harness.run() == ["executed", None]
    assert len(operator.submitted) == 1
    assert harness.clock.sleeps == [60, 60, 60]


def test_a_retry_of_a_deferred_task_takes_its_job_up() -> None:
    operator = job(Deferred, says=("RUNNING", "RUNNING", "DONE"))
    harness = JobHarness(operator)
    harness.run(crash_at="after job_trigger")
    assert harness.retry() == ["executed", None]
    assert len(operator.submitted) == 1


class Rescheduled(Job):
    wait = "reschedule"


@pytest.mark.parametrize("kind", [Deferred, Rescheduled])
def test_a_failure_that_is_seen_after_waking_is_the_trys_and_submits_nothing(kind: type[Job]) -> None:
    operator = kind(task_id="job", retries=1)
    operator.says = ("RUNNING", "FAILED", "FAILED", "DONE")
    harness = JobHarness(operator)
    with pytest.raises(JobFailed, match="FAILED"):
        harness.run()
    assert len(operator.submitted) == 1
    assert harness.retry() == ["executed", None]
    assert len(set(operator.submitted)) == len(operator.submitted) == 2


@pytest.mark.parametrize("kind", [Deferred, Rescheduled])
def test_a_job_that_nobody_could_find_again_is_waited_for_in_the_worker(kind: type[Job]) -> None:
    operator = kind(task_id="job", durable=False)
    operator.says = ("RUNNING", "RUNNING", "DONE")
    assert JobHarness(operator).run() == ["executed", None]
    assert len(operator.submitted) == 1
