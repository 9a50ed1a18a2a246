"""inbloom beside its peers in Python, in one interleaved run.

    python bench.py --keys 1000000 --of urls
    python bench.py --keys 10000000 --of integers --rust rust/target/release/inbloom-python-bench

Every contestant gets each batch of 10,000 keys in its turn, as new objects that nobody has hashed before: as
a crawler's are. So all see the same machine, and Python's cached hash of a str helps nobody. (The row
"same objects" has it the other way: what was hashed is passed again.) The filters are planned for a rate of
0.01; the measured rate and the bits per key are beside the times.
"""

import argparse
import platform
import subprocess
import sys
import time

import inbloom
import numpy
import pyarrow

BATCH = 10_000
RATE = 0.01
now = time.perf_counter_ns


def urls(start):
    return [
        f"https://example.org/{number % 1000}/{number * 7919}/page.html"
        for number in range(start, start + BATCH)
    ]


def integers(start):
    return [number * 0x9E3779B97F4A7C15 % 2**64 for number in range(start, start + BATCH)]


class Contestant:
    """A filter with its single calls and its best call for many keys."""

    def __init__(self, name, make, add_many=None, query_many=None, prepare=None, bits=None):
        self.name, self.filter = name, make()
        self.add_many = add_many or (lambda filter, keys: [filter.add(key) for key in keys])
        self.query_many = query_many or (lambda filter, keys: [key in filter for key in keys])
        self.prepare = prepare or (lambda keys: keys)
        self.bits = bits
        self.times = {}

    def note(self, what, nanoseconds):
        self.times.setdefault(what, []).append(nanoseconds / BATCH)


def contestants(count, of):
    more = {"int_width": 8} if of == "integers" else {}

    def ours():
        return inbloom.Filter(count, RATE, **more)

    def add(filter, keys):
        return filter.add_many(keys)

    def query(filter, keys):
        return filter.contains_many(keys)

    def bits(filter):
        return filter.info()["bytes"] * 8

    kind = pyarrow.string() if of == "urls" else pyarrow.uint64()
    all = [
        Contestant("inbloom, list", ours, add, query, bits=bits),
        Contestant(
            "inbloom, Arrow", ours, add, query, lambda keys: pyarrow.array(keys, kind), bits
        ),
    ]
    if of == "integers":
        all.append(
            Contestant(
                "inbloom, numpy", ours, add, query, lambda keys: numpy.array(keys, "uint64"), bits
            )
        )
    try:
        import rbloom

        update = rbloom.Bloom.update
        all.append(
            Contestant(
                "rbloom", lambda: rbloom.Bloom(count, RATE), update, bits=lambda f: f.size_in_bits
            )
        )
    except ImportError:
        print("rbloom is not installed")
    try:
        import pybloomfilter

        def update(filter, keys):
            filter.update(keys)

        all.append(
            Contestant(
                "pybloomfiltermmap3",
                lambda: pybloomfilter.BloomFilter(count, RATE),
                update,
                bits=lambda f: f.num_bits,
            )
        )
    except ImportError:
        print("pybloomfiltermmap3 is not installed")
    if count <= 1_000_000:
        try:
            import pybloom_live

            all.append(
                Contestant(
                    "pybloom-live",
                    lambda: pybloom_live.BloomFilter(count, RATE),
                    bits=lambda f: f.num_bits,
                )
            )
        except ImportError:
            print("pybloom-live is not installed")
    return all


def in_turn(all, number):
    """The contestants, each time beginning with another one."""
    first = number % max(1, len(all))
    return all[first:] + all[:first]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--of", choices=["urls", "integers"], default="urls")
    parser.add_argument("--only", help="one contestant alone, by its name")
    parser.add_argument("--rust", help="the program of rust/, which runs alone too")
    arguments = parser.parse_args()
    count, keys_of = arguments.keys, urls if arguments.of == "urls" else integers
    all = contestants(count, arguments.of)
    all = [one for one in all if arguments.only in (None, one.name)]
    singles = [
        one
        for one in all
        if one.name in ("inbloom, list", "rbloom", "pybloomfiltermmap3", "pybloom-live")
    ]
    slow = {"pybloom-live"}

    # Filled in batches, each batch by all.
    for number, start in enumerate(range(0, count, BATCH)):
        for one in in_turn(all, number):
            keys = one.prepare(keys_of(start))
            began = now()
            one.add_many(one.filter, keys)
            one.note("batch add", now() - began)
    sample = range(0, 2 * count, max(BATCH, 2 * count // 100 // BATCH * BATCH))
    for number, start in enumerate(sample):
        for one in in_turn(all, number):
            if one.name in slow and number % 10:
                continue
            keys = one.prepare(keys_of(start))
            began = now()
            one.query_many(one.filter, keys)
            one.note("batch query", now() - began)
    # The same objects again: rbloom then has their hashes from Python.
    for number, start in enumerate(list(sample)[:50]):
        keys = keys_of(start)
        for one in all:
            if one.name not in slow:
                one.query_many(one.filter, one.prepare(keys[:1]))
        for key in keys:
            hash(key)
        for one in in_turn([one for one in all if one.name in ("inbloom, list", "rbloom")], number):
            began = now()
            one.add_many(one.filter, keys)
            one.note("same objects, batch add", now() - began)
    # Single calls, to filters that are full.
    for number, start in enumerate(sample):
        for one in in_turn(singles, number):
            if one.name in slow and number % 10:
                continue
            filter, keys = one.filter, keys_of(start)
            began = now()
            for key in keys:
                key in filter
            one.note("single query", now() - began)
            add, keys = filter.add, keys_of(start % count)
            began = now()
            for key in keys:
                add(key)
            one.note("single add", now() - began)
    # The measured rate: none of these was added.
    for one in all:
        found = total = 0
        for start in range(3 * count, 3 * count + 20 * BATCH, BATCH):
            answers = one.query_many(one.filter, one.prepare(keys_of(start)))
            found, total = found + sum(answers), total + BATCH
        one.rate = found / total

    print(f"{arguments.of}, {count:,} keys, batches of {BATCH:,}; median nanoseconds per key")
    print(
        f"{platform.python_implementation()} {platform.python_version()}, inbloom {inbloom.__version__}, {processor()}"
    )
    rows = ["batch add", "batch query", "same objects, batch add", "single add", "single query"]
    print(f"{'':24}" + "".join(f"{one.name:>20}" for one in all))
    for row in rows:
        cells = [median(one.times[row]) if row in one.times else None for one in all]
        print(f"{row:24}" + "".join(f"{cell:20.1f}" if cell else f"{'-':>20}" for cell in cells))
    print(f"{'measured rate':24}" + "".join(f"{one.rate:20.4%}" for one in all))
    print(f"{'bits per key':24}" + "".join(f"{one.bits(one.filter) / count:20.2f}" for one in all))
    if arguments.rust:
        runs = [
            subprocess.check_output([arguments.rust, str(count), arguments.of], text=True).split()
            for _ in range(3)
        ]
        add, query = (min(float(run[place]) for run in runs) for place in (0, 1))
        print(f"Rust alone: batch add {add:.1f}, batch query {query:.1f}")


def median(values):
    return sorted(values)[len(values) // 2]


def processor():
    with open("/proc/cpuinfo") as lines:
        return next(
            (line.split(":")[1].strip() for line in lines if line.startswith("model name")), "?"
        )


if __name__ == "__main__":
    sys.exit(main())
