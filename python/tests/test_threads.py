"""Threads: one filter for all of them, with and without an interpreter lock."""

import sys
import threading
import time

import inbloom
import pytest

THREADS, EACH = 8, 30_000


def in_threads(work):
    errors = []

    def run(number):
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


@pytest.mark.parametrize("kind", ["blocked", "classic", "counting", "cuckoo", "scalable"])
def test_no_key_of_8_threads_is_lost(kind):
    filter = inbloom.Filter(THREADS * EACH * 2, 0.001, kind)
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:

        def work(number):
            mine = [f"thread {number} key {key}" for key in range(EACH)]
            for start in range(0, EACH, 1000):
                half = start + 500
                filter.add_many(mine[start:half])
                for key in mine[half : start + 1000]:
                    filter.add(key)
                assert all(filter.contains_many(mine[: start + 1000]))
                assert mine[start] in filter

        in_threads(work)
    finally:
        sys.setswitchinterval(switch)
    for number in range(THREADS):
        assert all(filter.contains_many([f"thread {number} key {key}" for key in range(EACH)]))
    assert abs(len(filter) - THREADS * EACH) < THREADS * EACH * 0.02


def test_merging_two_filters_into_each_other_does_not_deadlock():
    one, other = inbloom.Filter(10_000), inbloom.Filter(10_000)

    def work(number):
        for round in range(200):
            here, there = (one, other) if number % 2 else (other, one)
            here.add(f"{number} {round}")
            here.merge(there)
            assert isinstance(one == other, bool)

    in_threads(work)
    one.merge(other)
    assert all(f"{number} {round}" in one for number in range(THREADS) for round in range(200))


def test_saving_copying_and_clearing_beside_inserts(tmp_path):
    filter = inbloom.Filter(100_000, kind="scalable")

    def work(number):
        for round in range(20):
            if number == 0:
                filter.save(tmp_path / "seen.ib")
            elif number == 1:
                assert len(filter.copy()) >= 0
            else:
                filter.add_many([f"{number} {round} {key}" for key in range(500)])

    in_threads(work)
    assert len(inbloom.open(tmp_path / "seen.ib", verify=True)) <= len(filter) + 1


def test_a_list_that_another_thread_changes_is_taken_as_it_is_found():
    keys = [f"key {number}" for number in range(50_000)]
    filter = inbloom.Filter(100_000)
    stop = threading.Event()

    def change():
        while not stop.is_set():
            keys.clear()
            keys.extend(f"key {number}" for number in range(50_000))

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(30):
            filter.add_many(keys)
            filter.contains_many(keys)
    finally:
        stop.set()
        thread.join()


def test_batches_let_other_threads_run():
    """While one thread is in a long batch, another one counts."""
    import array

    filter = inbloom.Filter(1_000_000, int_width=8)
    column = array.array("Q", range(3_000_000))
    counted, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    time.sleep(0.05)
    before = counted[0]
    filter.add_many(column)
    during = counted[0] - before
    stop.set()
    thread.join()
    # With the lock held it would be a few steps around the call.
    assert during > 10_000, during
