"""redis-py, the newest, with its defaults (RESP3): what its users do. python redis_py.py PORT"""

import sys

import redis

client = redis.Redis(host="127.0.0.1", port=int(sys.argv[1]))
assert client.ping()
bloom, cuckoo = client.bf(), client.cf()


def equal(got, want):
    assert got == want, f"got {got!r}, expected {want!r}"


# The Bloom interface.
assert bloom.create("py:bloom", 0.001, 1000)
equal(bloom.add("py:bloom", "alice"), 1)
equal(bloom.add("py:bloom", "alice"), 0)
equal(list(bloom.madd("py:bloom", "bob", "carol", "bob")), [1, 1, 0])
equal(bloom.exists("py:bloom", "bob"), 1)
equal(list(bloom.mexists("py:bloom", "carol", "dave")), [1, 0])
equal(list(bloom.insert("py:inserted", ["x", "y", "x"], capacity=50, error=0.01)), [1, 1, 0])
equal(bloom.card("py:bloom"), 3)
info = bloom.info("py:bloom")
equal((info["capacity"], info["insertedNum"], info["filterNum"], info["expansionRate"]), (1000, 3, 1, 2))
try:
    bloom.create("py:bloom", 0.001, 1000)
    raise AssertionError("an existing filter was reserved again")
except redis.ResponseError as error:
    assert "item exists" in str(error), error

# Copied by its own dump interface, piece by piece.
iterator, pieces = 0, []
while True:
    iterator, data = bloom.scandump("py:bloom", iterator)
    if iterator == 0:
        break
    pieces.append((iterator, data))
for iterator, data in pieces:
    assert bloom.loadchunk("py:copy", iterator, data)
equal(list(bloom.mexists("py:copy", "alice", "bob", "dave")), [1, 1, 0])
equal(bloom.card("py:copy"), 3)

# The cuckoo interface.
assert cuckoo.create("py:cuckoo", 1000)
equal(cuckoo.add("py:cuckoo", "alice"), 1)
equal(cuckoo.addnx("py:cuckoo", "alice"), 0)
equal(cuckoo.count("py:cuckoo", "alice"), 1)
equal(cuckoo.exists("py:cuckoo", "alice"), 1)
equal(cuckoo.delete("py:cuckoo", "alice"), 1)
equal(cuckoo.exists("py:cuckoo", "alice"), 0)
equal(list(cuckoo.insert("py:cuckoo", ["a", "b"])), [1, 1])
equal(list(cuckoo.insertnx("py:cuckoo", ["a", "c"])), [0, 1])
equal(cuckoo.info("py:cuckoo")["insertedNum"], 3)

# pipeline() is MULTI ... EXEC by default, and plain pipelining without transaction.
with client.pipeline() as pipeline:
    pipeline.bf().add("py:bloom", "erin")
    pipeline.execute_command("BF.EXISTS", "py:bloom", "erin")
    equal([int(reply) for reply in pipeline.execute()], [1, 1])
with client.pipeline(transaction=False) as pipeline:
    for i in range(10_000):
        pipeline.execute_command("BF.ADD", "py:many", f"key:{i}")
    equal(sum(map(int, pipeline.execute())) >= 9_900, True)
with client.pipeline(transaction=False) as pipeline:
    for i in range(10_000):
        pipeline.execute_command("BF.EXISTS", "py:many", f"key:{i}")
    equal(all(pipeline.execute()), True)

# Keys.
equal(client.type("py:bloom"), b"MBbloom--")
equal(client.type("py:cuckoo"), b"MBbloomCF")
assert client.expire("py:bloom", 1000) and 0 < client.ttl("py:bloom") <= 1000
equal(sorted(client.scan_iter(match="py:*")), sorted(client.keys("py:*")))
equal(client.delete("py:copy", "py:inserted"), 2)
assert client.info()["redis_version"] and client.config_get("bf-error-rate")
modules = [{key if isinstance(key, str) else key.decode(): value for key, value in module.items()} for module in client.module_list()]
equal([module["name"] for module in modules], [b"bf"])
try:
    client.set("string", "x")
    raise AssertionError("SET is not ours, and must not seem to work")
except redis.ResponseError as error:
    assert "unknown command" in str(error), error

# The old protocol.
old = redis.Redis(host="127.0.0.1", port=int(sys.argv[1]), protocol=2)
equal(old.bf().add("py:old", "x"), 1)
equal(old.bf().info("py:old")["capacity"], 100)
print("redis-py", redis.__version__, "ok")
