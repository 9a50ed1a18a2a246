"""Single calls, kinds, errors."""

import copy
import datetime
import pickle
import random
import time

import inbloom
import pytest

KINDS = {
    "blocked": {},
    "classic": {},
    "counting": {},
    "cuckoo": {},
    "scalable": {},
    # All keys come in one of its four steps, and it is planned for keys that come evenly.
    "window": {"window": 3600, "items": 12_000},
}


def made(kind, items, rate):
    return inbloom.Filter(**{"items": items, "rate": rate, "kind": kind, **KINDS[kind]})


def keys(count, start=0):
    return [f"https://example.org/{number}" for number in range(start, start + count)]


@pytest.mark.parametrize("kind", KINDS)
def test_no_key_that_was_added_is_missed_and_others_rarely_found(kind):
    filter = made(kind, 2000, 0.01)
    # A key that collides with one before is reported as seen; 2000 keys have few of those.
    assert sum(filter.add(key) for key in keys(2000)) > 1960
    assert all(key in filter for key in keys(2000))
    false = sum(key in filter for key in keys(10_000, start=10_000))
    assert false < 100 + 5 * 10, false
    assert abs(len(filter) - 2000) < 100
    assert filter.kind == kind and filter.info()["kind"] == kind


@pytest.mark.parametrize("kind", KINDS)
def test_batches_answer_as_single_calls_do(kind):
    single = made(kind, 3000, 0.01)
    batch = made(kind, 3000, 0.01)
    if kind == "window":
        # One clock for both: they would be told the time at different moments.
        single.advance(1000)
        batch.advance(1000)
    some = keys(5000)
    random.Random(1).shuffle(some)
    some = (some + some[:500])[:5500]
    taken = some[:2900]
    assert batch.add_many(taken) == [single.add(key) for key in taken]
    assert batch.contains_many(some) == [key in single for key in some]
    assert batch == single


def test_text_bytes_and_buffers_of_the_same_bytes_are_one_key():
    filter = inbloom.Filter(1000)
    assert filter.add("Gr\u00fc\u00dfe \u4f60\u597d")
    data = "Gr\u00fc\u00dfe \u4f60\u597d".encode()
    for key in (data, bytearray(data), memoryview(data)):
        assert key in filter and not filter.add(key)
        assert filter.contains_many([key]) == [True]
    assert "gr\u00fc\u00dfe" not in filter

    class Text(str):
        pass

    assert Text("Gr\u00fc\u00dfe \u4f60\u597d") in filter
    assert filter.contains_many([Text("Gr\u00fc\u00dfe \u4f60\u597d")]) == [True]


def test_integers_are_keys_only_where_their_width_is_said():
    plain = inbloom.Filter(1000)
    for call in (plain.add, plain.__contains__, lambda key: plain.add_many([key])):
        with pytest.raises(TypeError, match="int_width"):
            call(42)
    wide = inbloom.Filter(1000, 0.001, int_width=8)
    assert wide.add(42) and 42 in wide and (42).to_bytes(8, "little") in wide
    assert wide.add(-1) and (2**64 - 1) in wide
    assert wide.info()["key_encoding"] == "u64le"
    narrow = inbloom.Filter(1000, 0.001, int_width=4)
    assert narrow.add(-2) and b"\xfe\xff\xff\xff" in narrow
    for filter, limit in ((wide, 2**64), (narrow, 2**32)):
        for value in (limit, -limit // 2 - 1):
            with pytest.raises(OverflowError, match="bits"):
                filter.add(value)
            with pytest.raises(OverflowError, match="bits"):
                filter.contains_many([value])
    again = inbloom.from_bytes(wide.to_bytes())
    assert 42 in again and 43 not in again
    with pytest.raises(TypeError):
        wide.add(True)
    with pytest.raises(inbloom.ParameterError, match="4 or 8"):
        inbloom.Filter(1000, int_width=3)


def test_what_is_no_key_is_refused_and_changes_nothing():
    filter = inbloom.Filter(1000)
    for key in (None, 1.5, ["a"], object()):
        with pytest.raises(TypeError):
            filter.add(key)
        with pytest.raises(TypeError):
            key in filter
        with pytest.raises(TypeError):
            filter.add_many([key])
    with pytest.raises(UnicodeEncodeError):
        filter.add("\ud800")
    with pytest.raises(UnicodeEncodeError):
        filter.add_many(["\ud800"])
    for many in ("alice", b"alice", bytearray(b"alice")):
        with pytest.raises(TypeError, match="many keys"):
            filter.add_many(many)
    with pytest.raises(TypeError):
        filter.add_many(5)
    assert len(filter) == 0 and not filter


def test_any_iterable_is_a_batch_also_an_endless_number_of_keys_by_and_by():
    filter = inbloom.Filter(100_000, 0.001)
    filter.update(f"key {number}" for number in range(10_001))
    assert all(f"key {number}" in filter for number in range(10_001))
    assert filter.contains_many({"key 5", "key 6"}) == [True, True]
    assert filter.contains_many(("key 5", "nothing")) == [True, False]
    assert filter.contains_many([]) == [] and len(filter.add_many(iter([]))) == 0

    def failing():
        yield "one"
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        filter.update(failing())


def test_remove_and_count():
    for kind in ("counting", "cuckoo"):
        filter = inbloom.Filter(1000, 0.001, kind)
        filter.update(["a", "a", "b"])
        assert filter.count("a") == 2 and filter.count("c") == 0
        assert not filter.add_if_absent("a") and filter.count("a") == 2
        assert filter.remove("a") and filter.remove("a") and not filter.remove("a")
        assert "a" not in filter and "b" in filter
    with pytest.raises(inbloom.UnsupportedError, match="remove"):
        inbloom.Filter(1000).remove("a")


def test_merge_and_its_operators():
    one, other = inbloom.Filter(1000), inbloom.Filter(1000)
    one.update(keys(300))
    other.update(keys(300, start=200))
    both = one | other
    assert both.contains_many(keys(500)).count() == 500 and len(one) < 320
    same = one
    one |= other
    assert one is same and one == both
    one |= one
    assert one == both
    with pytest.raises(inbloom.MismatchError, match="differ"):
        one.merge(inbloom.Filter(2000))
    with pytest.raises(ValueError):
        one.merge(inbloom.Filter(1000, seed=7))
    with pytest.raises(TypeError):
        one.merge({"a"})
    with pytest.raises(TypeError):
        one | {"a"}


def test_copies_are_apart_and_clear_empties():
    filter = inbloom.Filter(1000)
    filter.add("a")
    for copied in (filter.copy(), copy.copy(filter), copy.deepcopy(filter)):
        assert copied == filter
        copied.add("b")
        assert copied != filter and "b" not in filter
    filter.clear()
    assert len(filter) == 0 and "a" not in filter
    assert filter != "a filter"
    with pytest.raises(TypeError):
        hash(filter)


def test_pickles_are_the_bytes_of_the_file(tmp_path):
    filter = inbloom.Filter(1000, note="from Monday")
    filter.update(keys(500))
    data = filter.to_bytes()
    assert data in pickle.dumps(filter)
    assert pickle.loads(pickle.dumps(filter)) == filter
    filter.save(tmp_path / "seen.ib")
    assert (tmp_path / "seen.ib").read_bytes() == data
    assert inbloom.from_bytes(memoryview(data)).info()["note"] == "from Monday"
    with pytest.raises(inbloom.FormatError, match="follow"):
        inbloom.from_bytes(data + b"x")


def test_secrets():
    secret = bytes(range(16))
    filter = inbloom.Filter(1000, secret=secret)
    filter.add("a")
    data = filter.to_bytes()
    assert "a" in inbloom.from_bytes(data, secret=secret)
    for wrong in (None, bytes(16)):
        with pytest.raises(inbloom.SecretError):
            inbloom.from_bytes(data, secret=wrong)
    with pytest.raises(inbloom.SecretError, match="pickle"):
        pickle.dumps(filter)
    with pytest.raises(inbloom.ParameterError, match="16"):
        inbloom.Filter(1000, secret=b"short")
    with pytest.raises(inbloom.ParameterError, match="combined"):
        inbloom.Filter(1000, secret=secret, seed=1)


def test_windows_follow_the_clock():
    for window in (0.4, datetime.timedelta(milliseconds=400), "0.4s"):
        recent = inbloom.Filter(1000, kind="window", window=window, generations=4)
        assert recent.add("a") and "a" in recent
        assert recent.info()["window"] == 0.4
    time.sleep(0.7)
    assert "a" not in recent and recent.add("a")
    last = inbloom.Filter(kind="window", last=100)
    last.add("first")
    last.update(keys(1000))
    assert "first" not in last
    for bad in ("7x", "", 0, -1, float("nan")):
        with pytest.raises(inbloom.ParameterError, match="window"):
            inbloom.Filter(1000, kind="window", window=bad)
    with pytest.raises(inbloom.UnsupportedError):
        inbloom.Filter(1000).advance(5)


def test_bitmaps_are_exact():
    bits = inbloom.Filter(kind="bitmap", universe=1000)
    assert bits.add_many([4, 7, 2, 5, 3]).count() == 5
    assert [value for value in range(1000) if value in bits] == [2, 3, 4, 5, 7]
    assert len(bits) == 5 and bits.remove(4) and 4 not in bits
    with pytest.raises(inbloom.ParameterError, match="below 1000"):
        bits.add(1000)
    # The bytes of "7" are the integer 55: whoever adds it would not find 7.
    for call in (bits.add, bits.remove, bits.count, bits.__contains__):
        with pytest.raises(TypeError, match="integers"):
            call("7")
    for call in (bits.add_many, bits.contains_many, bits.update):
        with pytest.raises(TypeError, match="integers"):
            call(["7"])
    assert 55 not in bits and (7).to_bytes(8, "little") in bits


def test_static_filters_are_built_from_all_keys():
    some = keys(10_000)
    built = inbloom.build(some, 0.001)
    assert built.kind == "ribbon" and len(built) == 10_000
    assert all(built.contains_many(some))
    assert built.contains_many(keys(10_000, start=50_000)).count() < 40
    assert built.info()["bytes"] * 8 / 10_000 < 10.6
    with pytest.raises(inbloom.UnsupportedError):
        built.add("a")
    with pytest.raises(inbloom.UnsupportedError, match="build"):
        inbloom.Filter(1000, kind="ribbon")
    assert 7 in inbloom.build(range(100), 1e-6, int_width=8)
    assert inbloom.build(iter(some), 0.01, "blocked").contains_many(some).count() == 10_000
    assert len(inbloom.build([])) == 0


def test_a_full_filter_says_how_many_keys_of_a_batch_it_took():
    filter = inbloom.Filter(100, 0.01, "cuckoo")
    with pytest.raises(inbloom.FullError, match="keys of the batch were added before") as raised:
        filter.add_many(keys(10_000))
    added = int(str(raised.value).split("; ")[-1].split()[0])
    assert filter.contains_many(keys(added)).count() == added


def test_plans_and_their_refusals():
    plan = inbloom.plan(1_000_000, 0.01)
    assert plan["bytes"] == inbloom.Filter(1_000_000, 0.01).info()["bytes"] == 1_265_408
    assert inbloom.plan(items=1000, kind="window", window="7d")["window"] == 7 * 86400
    assert inbloom.plan(1000, growth=4, kind="scalable")["growth"] == 4
    for arguments in ({"rate": 2.0}, {"rate": float("nan")}, {"kind": "blom"}, {"items": 10**16}):
        with pytest.raises(inbloom.ParameterError):
            inbloom.plan(**{"items": 1000, **arguments})
    with pytest.raises(inbloom.UnsupportedError):
        inbloom.plan(1000, growth=2)
    with pytest.raises(OverflowError):
        inbloom.plan(-1)
    with pytest.raises((MemoryError, inbloom.ParameterError)):
        inbloom.Filter(10**15, 1e-12)


def test_info_has_the_names_of_the_command_line():
    filter = inbloom.Filter(1000, 0.01)
    filter.update(keys(1000))
    info = filter.info()
    assert info["target_rate"] == 0.01
    assert info["occupied"] == pytest.approx(info["fill"] * info["bits"], rel=0.02)
    assert not {"promised_rate", "ones"} & info.keys()


def test_auto_clear():
    filter = inbloom.Filter(100, 0.01, auto_clear=0.5)
    filter.update(keys(10_000))
    assert filter.info()["fill"] <= 0.51 and filter.info()["auto_clear"] == 0.5


def test_a_closed_filter_refuses_every_call(tmp_path):
    filter = inbloom.Filter(1000)
    filter.close()
    filter.close()
    calls = [filter.clear, filter.info, filter.copy, filter.to_bytes, filter.__len__]
    calls += [lambda: filter.add("a"), lambda: "a" in filter, lambda: filter.add_many(["a"])]
    calls += [
        lambda: filter.save(tmp_path / "a"),
        lambda: filter.update(["a"]),
        lambda: filter | inbloom.Filter(1000),
    ]
    for call in calls:
        with pytest.raises(inbloom.ClosedError):
            call()
    assert "closed" in repr(filter)


def test_answers():
    answers = inbloom.Filter(1000).add_many(["a", "b", "a"])
    assert answers[0] and not answers[-1] and len(answers) == 3
    with pytest.raises(IndexError):
        answers[3]
    view = memoryview(answers)
    assert view.readonly and view.format == "?" and view.tolist() == [True, True, False]
    assert answers.count() == 2 and answers.count(False) == 1
    assert answers == [True, True, False] and answers != [True] and answers != 5
    assert repr(answers) == "Answers([True, True, False])"
    assert view.nbytes == 3 and bytes(view) == b"\x01\x01\x00"
    del answers
    assert view.tolist() == [True, True, False]


def test_subclasses_work():
    class Seen(inbloom.Filter):
        pass

    seen = Seen(1000)
    assert seen.add("a") and "a" in seen
