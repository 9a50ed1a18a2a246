"""Columns of other libraries, read where they lie: their answers are those of lists."""

import array
import gc
import random

import inbloom
import pytest
from conftest import module

TEXTS = ["a", "", "short", "a key of more than twelve bytes", "Gr\u00fc\u00dfe", "x" * 5000] + [
    f"https://example.org/{number}" for number in range(9000)
]


@pytest.fixture
def filter():
    filter = inbloom.Filter(100_000, 1e-9, int_width=8)
    filter.update(TEXTS[::2])
    filter.update(range(0, 5000, 2))
    return filter


def expected(filter, values):
    return [value is not None and value in filter for value in values]


def arrow_types(pa):
    return [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
    ]


def test_every_arrow_type_of_text_and_bytes(filter):
    pa = module("pyarrow")
    values = list(TEXTS)
    holes = [None if number % 7 == 0 else text for number, text in enumerate(values)]
    for kind in arrow_types(pa):
        for some in (values, holes, [], [None], [None] * 5000):
            encoded = [text and text.encode() for text in some] if "binary" in str(kind) else some
            encoded = (
                [b"" if text == "" else text for text in encoded]
                if "binary" in str(kind)
                else encoded
            )
            column = pa.array(encoded, kind)
            assert filter.contains_many(column) == expected(filter, some), kind
            # A slice has an offset into the same memory.
            assert filter.contains_many(column[3:-5]) == expected(filter, some[3:-5]), kind
            cut = pa.chunked_array([column[:2], column[2:2], column[2:]])
            assert filter.contains_many(cut) == expected(filter, some), kind


def test_arrow_integers_and_fixed_bytes(filter):
    pa = module("pyarrow")
    for kind in (
        pa.int8(),
        pa.uint8(),
        pa.int16(),
        pa.uint16(),
        pa.int32(),
        pa.uint32(),
        pa.int64(),
        pa.uint64(),
    ):
        values = [0, 1, 2, None, 99, 100]
        column = pa.array(values, kind)
        assert filter.contains_many(column) == expected(filter, values), kind
        assert filter.contains_many(column[1:]) == expected(filter, values[1:]), kind
    filter.add(-3)
    assert filter.contains_many(pa.array([-3, -4], pa.int16())) == [True, False]
    fixed = pa.array([b"abcd", b"abc\0", None], pa.binary(4))
    filter.add(b"abc\0")
    assert filter.contains_many(fixed) == [False, True, False]
    assert filter.contains_many(pa.nulls(3)) == [False] * 3


def test_missing_values_are_not_added():
    pa = module("pyarrow")
    filter = inbloom.Filter(10_000, 1e-9)
    column = pa.array([None if number % 3 else f"key {number}" for number in range(9000)])
    answers = filter.add_many(column)
    assert list(answers) == [number % 3 == 0 for number in range(9000)]
    assert abs(len(filter) - 3000) < 30 and "" not in filter
    assert len(inbloom.build(column)) == 3000


def test_arrow_types_that_are_no_keys_are_refused(filter):
    pa = module("pyarrow")
    for column in (
        pa.array([1.5]),
        pa.array([True]),
        pa.array(["a"]).dictionary_encode(),
        pa.array([["a"]]),
    ):
        with pytest.raises(TypeError, match="Arrow"):
            filter.contains_many(column)
    with pytest.raises(TypeError):
        filter.contains_many(pa.table({"a": ["b"]}))
    with pytest.raises(TypeError, match="int_width"):
        inbloom.Filter(100).contains_many(pa.array([1]))


def test_a_damaged_arrow_column_raises():
    pa = module("pyarrow")
    offsets = array.array("i", [0, 5, 3, 9])
    data = pa.py_buffer(b"abcdefghi")
    column = pa.Array.from_buffers(pa.string(), 3, [None, pa.py_buffer(offsets), data])
    filter = inbloom.Filter(100)
    with pytest.raises(ValueError, match="damaged"):
        filter.contains_many(column)
    # A view beyond its buffer: length 20, prefix, buffer 0, offset 100.
    view = (
        (20).to_bytes(4, "little")
        + b"abcd"
        + (0).to_bytes(4, "little")
        + (100).to_bytes(4, "little")
    )
    column = pa.Array.from_buffers(pa.string_view(), 1, [None, pa.py_buffer(view), data])
    with pytest.raises(ValueError, match="damaged"):
        filter.contains_many(column)


def test_data_that_were_taken_already_are_refused():
    pa = module("pyarrow")

    class Twice:
        def __init__(self, column):
            self.capsules = column.__arrow_c_array__()

        def __arrow_c_array__(self, requested_schema=None):
            return self.capsules

    twice = Twice(pa.array(["a", "b"]))
    filter = inbloom.Filter(100)
    assert filter.add_many(twice) == [True, True]
    with pytest.raises(ValueError, match="released"):
        filter.add_many(twice)

    class Wrong:
        def __arrow_c_array__(self, requested_schema=None):
            return (1, 2)

    with pytest.raises((TypeError, ValueError)):
        filter.add_many(Wrong())


def test_nothing_of_arrow_is_kept_or_lost():
    pa = module("pyarrow")
    gc.collect()
    before = pa.total_allocated_bytes()
    filter = inbloom.Filter(10_000)
    for _ in range(20):
        filter.add_many(pa.array(TEXTS))
        with pytest.raises(TypeError):
            filter.add_many(pa.array([1.5] * 1000))
    gc.collect()
    assert pa.total_allocated_bytes() == before


def test_polars(filter):
    pl = module("polars")
    values = [None if number % 5 == 0 else text for number, text in enumerate(TEXTS)]
    series = pl.Series("url", values)
    assert filter.contains_many(series) == expected(filter, values)
    assert filter.contains_many(series.to_frame()["url"].slice(5, 90)) == expected(
        filter, values[5:95]
    )
    found = inbloom.isin(series, filter)
    assert (
        found.name == "url"
        and found.dtype == pl.Boolean
        and found.to_list() == expected(filter, values)
    )
    assert inbloom.isin(pl.Series([2, 3, None]), filter).to_list() == [True, False, False]
    frame = pl.DataFrame({"url": values}).filter(
        pl.col("url").map_batches(lambda urls: inbloom.isin(urls, filter), return_dtype=pl.Boolean)
    )
    assert frame.height == sum(expected(filter, values))


def test_pandas(filter):
    pd = module("pandas")
    values = [None if number % 5 == 0 else text for number, text in enumerate(TEXTS)]
    for series in (pd.Series(values, name="url"), pd.Series(values, name="url", dtype=object)):
        series.index = range(100, 100 + len(values))
        found = inbloom.isin(series, filter)
        assert found.name == "url" and list(found.index) == list(series.index)
        assert found.dtype == bool and list(found) == expected(filter, values)
        assert list(series[found]) == [
            text for text in values if text is not None and text in filter
        ]
    assert list(inbloom.isin(pd.Series([2, 3]), filter)) == [True, False]
    assert list(inbloom.isin(pd.Series([2, 3, None], dtype="Int64"), filter)) == [
        True,
        False,
        False,
    ]
    assert list(inbloom.isin(pd.Index(["a", "no"]), filter)) == [True, False]


def test_pyarrow_isin(filter):
    pa = module("pyarrow")
    column = pa.array(["a", None, "no"])
    assert inbloom.isin(column, filter).equals(pa.array([True, False, False]))
    cut = pa.chunked_array([["a"], ["no", None]])
    assert inbloom.isin(cut, filter).equals(pa.chunked_array([[True], [False, False]]))


def test_numpy(filter):
    np = module("numpy")
    values = list(range(-5, 3000))
    for kind in ("int16", "int32", "int64"):
        column = np.array(values, kind)
        assert filter.contains_many(column) == expected(filter, values), kind
    for kind in ("uint8", "uint16", "uint32", "uint64"):
        column = np.arange(250, dtype=kind)
        assert filter.contains_many(column) == expected(filter, range(250)), kind
    column = np.arange(9000, dtype="uint64")
    assert filter.contains_many(column[::3]) == expected(filter, range(0, 9000, 3))
    assert filter.contains_many(column[::-1]) == expected(filter, range(8999, -1, -1))
    assert filter.contains_many(column[:0]) == []
    assert filter.contains_many(np.array(TEXTS[:5])) == expected(filter, TEXTS[:5])
    assert filter.contains_many(np.array(TEXTS[:5], object)) == expected(filter, TEXTS[:5])
    padded = np.array([b"a", b"short", b"none"])
    assert filter.contains_many(padded) == [b"a" in filter, b"short" in filter, False]
    found = inbloom.isin(column, filter)
    assert (
        found.dtype == bool
        and found.shape == (9000,)
        and list(found) == expected(filter, range(9000))
    )
    rows = np.frombuffer(b"abcdefgh", np.uint8).reshape(2, 4)
    filter.add(b"efgh")
    assert filter.contains_many(rows) == [False, True]
    assert filter.contains_many(rows.view("V4").reshape(2)) == [False, True]
    assert np.asarray(filter.contains_many(rows)).base is not None
    scalar = np.int64(2)
    assert scalar in filter and filter.contains_many([scalar, np.str_("a")]) == [
        True,
        "a" in filter,
    ]


def test_arrays_that_are_no_keys_are_refused(filter):
    np = module("numpy")
    for column in (
        np.ones(3),
        np.ones(3, bool),
        np.ones((2, 2)),
        np.ones((2, 2, 2), np.uint8),
        np.array(5),
    ):
        with pytest.raises(TypeError):
            filter.contains_many(column)
    with pytest.raises(TypeError, match="byte order"):
        filter.contains_many(np.arange(3, dtype=">u8"))
    with pytest.raises(TypeError, match="follow"):
        filter.contains_many(np.ones((4, 4), np.uint8)[:, ::2])
    plain = inbloom.Filter(100)
    with pytest.raises(TypeError, match="int_width"):
        plain.contains_many(np.arange(3))
    with pytest.raises(TypeError, match="each byte"):
        plain.contains_many(memoryview(b"abc"))
    narrow = inbloom.Filter(100, int_width=4)
    assert narrow.add_many(np.array([-1, 2**32 - 2])) == [True, True]
    with pytest.raises(ValueError, match="32 bits"):
        narrow.contains_many(np.array([2**32]))


def test_standard_arrays(filter):
    assert filter.contains_many(array.array("q", [2, 3, -9])) == [True, False, False]
    assert filter.contains_many(range(5)) == [True, False, True, False, True]


def test_random_batches_of_all_forms_agree():
    np, pa = module("numpy"), module("pyarrow")
    random_numbers = random.Random(7)
    one, two, three, four, five = (
        inbloom.Filter(20_000, 0.01, int_width=8) for _ in range(5)
    )
    for _ in range(30):
        some = [
            random_numbers.getrandbits(64)
            for _ in range(random_numbers.choice([1, 127, 128, 129, 4096, 4097, 16_385]))
        ]
        answers = one.add_many(some)
        column = np.array(some, "uint64")
        assert two.add_many(column) == answers
        assert three.add_many(pa.array(some, pa.uint64())) == answers
        # Neither at a multiple of eight bytes, nor one behind the other.
        unaligned = np.frombuffer(b"-" + column.tobytes(), "uint64", offset=1)
        assert not unaligned.flags.aligned and four.add_many(unaligned) == answers
        assert five.add_many(np.repeat(column, 2)[::2]) == answers
        assert one.contains_many(column.view("int64")).count() == len(some)
    assert one == two == three == four == five
