"""Batches of one watcher: new, repeated, replaced, missing."""

from __future__ import annotations

from airflow_state_watchers.core.chain import BATCHES, CHAINS, GENERATIONS, Chains, Event, sift


def event(
    number: int,
    batch: str,
    previous: str | None = None,
    *,
    watcher: str = "w",
    generation: int = 1,
    replaces: tuple[str, ...] = (),
) -> Event:
    return Event(number, number * 1_000_000, watcher, generation, batch, previous, 1, replaces)


A = event(1, "a")
B = event(2, "b", "a")
C = event(3, "c", "b")


def test_what_follows_is_new() -> None:
    sifted = sift(Chains().add([A]), [B, C])
    assert sifted.fresh == (B, C)
    assert not sifted.repeats
    assert not sifted.strangers


def test_the_same_batch_again_is_a_repeat() -> None:
    again = event(9, "b", "a")
    assert sift(Chains().add([A, B]), [again]).repeats == (again,)
    assert sift(Chains(), [A, B, again]).repeats == (again,), "also within one reading"
    assert sift(Chains(), [again], around=[B]).repeats == (again,), "also of one read again"


def test_the_same_batch_id_of_another_watcher_or_generation_is_no_repeat() -> None:
    others = [event(8, "b", watcher="v"), event(9, "b", generation=2)]
    sifted = sift(Chains().add([A, B]), others)
    assert sifted.fresh == tuple(others)
    assert not sifted.strangers


def test_a_batch_that_nobody_knows_makes_a_stranger() -> None:
    assert sift(Chains().add([A]), [C]).strangers == (C,)
    assert not sift(Chains().add([A]), [B, C]).strangers
    assert not sift(Chains().add([A]), [C], around=[B]).strangers, "the missing one was read just now"
    late = [event(3, "c", "b"), event(4, "b", "a")]
    assert not sift(Chains().add([A]), late).strangers, "clocks differ: the one before it may bear a later time"


def test_a_new_chain_may_begin_anywhere_but_has_no_hole_inside() -> None:
    assert not sift(Chains(), [B, C]).strangers
    beyond = event(7, "g", "f")
    assert sift(Chains(), [B, C, beyond]).strangers == (beyond,)


def test_a_watcher_that_lost_its_state_begins_anew() -> None:
    assert not sift(Chains().add([A, B]), [event(9, "z", None)]).strangers


def test_a_replacement_is_told_what_it_may_repeat() -> None:
    replacement = event(4, "b2", "a", replaces=("b",))
    (kin,) = sift(Chains().add([A, B]), [replacement]).kin[4]
    assert (kin.batch_id, kin.event_id, kin.time) == ("b", 2, 2_000_000)


def test_all_that_replace_one_batch_are_kin() -> None:
    first, second = event(4, "b2", "a", replaces=("b",)), event(5, "b3", "b2", replaces=("b",))
    sifted = sift(Chains().add([A]), [first, second])
    assert [kin.batch_id for kin in sifted.kin[5]] == ["b2"], "the replaced batch itself never reached the database"
    late = event(6, "b", "a")
    assert {kin.batch_id for kin in sift(Chains().add([A, first, second]), [late]).kin[6]} == {"b2", "b3"}


def test_unrelated_batches_are_no_kin() -> None:
    assert not sift(Chains().add([A, B]), [C]).kin


def test_memory_is_bounded() -> None:
    long = Chains().add(event(n, f"b{n}") for n in range(100))
    assert [len(chain.batches) for chain in long.chains] == [BATCHES]
    assert long.chains[0].batches[-1].batch_id == "b99"
    many = Chains().add(event(n, "b", watcher=f"w{n}") for n in range(100))
    assert len(many.chains) == CHAINS
    assert many.chains[-1].watcher == "w99"
    generations = Chains().add(event(n, "b", generation=n) for n in range(9))
    assert [chain.generation for chain in generations.chains] == [8 - n for n in reversed(range(GENERATIONS))]


def test_a_chain_in_use_is_kept() -> None:
    chains = Chains().add([A]).add(event(n, "b", watcher=f"w{n}") for n in range(CHAINS - 1)).add([B])
    assert chains.chains[-1].key == ("w", 1)
    assert chains.add([event(99, "b", watcher="new")]).chains[-2].key == ("w", 1)
