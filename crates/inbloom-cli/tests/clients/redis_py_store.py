"""redis-py, the newest, against servers in front of one store.

python redis_py_store.py fill PORT PORT: uses both servers at once
python redis_py_store.py check PORT: finds with one server what both have added
"""

import sys

import redis

ADDED = 5_000


def equal(got, want):
    assert got == want, f"got {got!r}, expected {want!r}"


def refused(call, reason):
    try:
        call()
    except redis.ResponseError as error:
        assert "does not work with --store" in str(error) and reason in str(error), error
    else:
        raise AssertionError(f"not refused: {reason}")


def fill(first, second):
    one, two = first.bf(), second.bf()
    assert one.create("shared", 0.001, 100_000)
    try:
        two.create("shared", 0.001, 100_000)
        raise AssertionError("an existing filter was reserved again")
    except redis.ResponseError as error:
        assert "item exists" in str(error), error
    # What one server adds, the other finds.
    equal(one.add("shared", "alice"), 1)
    equal(two.add("shared", "alice"), 0)
    equal(list(two.madd("shared", "alice", "bob")), [0, 1])
    equal(list(one.mexists("shared", "alice", "bob", "carol")), [1, 1, 0])
    equal(one.exists("missing", "alice"), 0)
    equal(list(two.insert("other", ["x", "y", "x"], capacity=50, error=0.01)), [1, 1, 0])
    info = one.info("shared")
    equal((info["capacity"], info["filterNum"], info["expansionRate"]), (100_000, 1, None))
    assert abs(one.card("shared") - 2) <= 1, one.card("shared")
    # Half of the items by each, in pipelines without MULTI.
    for number, client in enumerate([first, second]):
        with client.pipeline(transaction=False) as pipeline:
            for i in range(number, ADDED, 2):
                pipeline.execute_command("BF.ADD", "shared", f"key:{i}")
            assert sum(map(int, pipeline.execute())) >= ADDED / 2 - 20
    # Keys.
    equal(first.type("shared"), b"MBbloom--")
    equal(sorted(second.keys("*")), [b"other", b"shared"])
    equal(sorted(first.scan_iter()), [b"other", b"shared"])
    equal(first.exists("shared", "missing"), 1)
    assert first.expire("other", 1000) and 0 < second.ttl("other") <= 1000
    assert second.persist("other") and first.ttl("other") == -1
    equal(second.delete("other", "missing"), 1)
    equal(first.dbsize(), 1)
    equal(two.add("default", "alice"), 1)
    equal(one.info("default")["capacity"], 2_000)
    refused(lambda: first.cf().add("cuckoo", "alice"), "CF.ADD")
    refused(lambda: first.flushall(), "FLUSHALL")
    refused(lambda: one.scandump("shared", 0), "inbloom pull")
    refused(lambda: first.execute_command("BF.RESERVE", "w", 0.01, 100, "WINDOW", "1h"), "WINDOW")
    refused(lambda: first.execute_command("MULTI"), "pipeline")
    assert first.info("persistence")["store_status"] == "up"


def check(client):
    bloom = client.bf()
    equal(list(bloom.mexists("shared", "alice", "bob")), [1, 1])
    with client.pipeline(transaction=False) as pipeline:
        for i in range(ADDED):
            pipeline.execute_command("BF.EXISTS", "shared", f"key:{i}")
        equal(sum(map(int, pipeline.execute())), ADDED)
    with client.pipeline(transaction=False) as pipeline:
        for i in range(ADDED):
            pipeline.execute_command("BF.EXISTS", "shared", f"absent:{i}")
        assert sum(map(int, pipeline.execute())) < 20
    card = bloom.card("shared")
    assert abs(card - (ADDED + 2)) < 50, card
    equal(bloom.add("shared", "carol"), 1)


clients = [redis.Redis(host="127.0.0.1", port=int(port)) for port in sys.argv[2:]]
{"fill": fill, "check": check}[sys.argv[1]](*clients)
print("ok")
