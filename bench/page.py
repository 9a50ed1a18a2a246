#!/usr/bin/env python3
"""The page at --http: how long its API takes beside 10,000 filters, and what an open page costs other clients.

    bench/page.py target/release/inbloom > bench/record/DATE-page.txt

An open page is what browsers ask while the list, one filter and the health are open in three tabs: every second
/api/filters, the filter with its history, and /api/health. The browser itself is left out: it works on another
machine. The load is redis-benchmark (Debian: redis-tools), pipelined BF.EXISTS for the filter that is shown.
Throughput is measured in pairs, with the page and without, the first of them in turns.
"""

import argparse
import contextlib
import datetime
import http.client
import math
import os
import platform
import socket
import statistics
import subprocess
import threading
import time

FILTERS = 10_000
CAPACITY = 10_000_000
GOAL_MS = 50
GOAL_SHARE = 0.97

# What is asked, and whether an open page asks it every second.
ADDRESSES = [
    ("the list", "/api/filters?limit=50", True),
    ("the list by use, page 100", "/api/filters?sort=used&limit=50&offset=5000", False),
    ("a search", "/api/filters?q=user:77&limit=50", False),
    ("a filter", "/api/filters/shown", True),
    ("its history", "/api/filters/shown/history", True),
    ("a test of a key", "/api/filters/shown/test?key=a", False),
    ("a plan", "/api/plan?items=10M&rate=0.1%25", False),
    ("health", "/api/health", True),
]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def server(binary):
    """A server, and its two ports."""
    ports = free_port(), free_port()
    addresses = [f"127.0.0.1:{port}" for port in ports]
    process = subprocess.Popen(
        [binary, "serve", "--listen", addresses[0], "--http", addresses[1]], stderr=subprocess.DEVNULL
    )
    try:
        yield ports
    finally:
        process.terminate()
        process.wait()


def connect(port):
    for _ in range(200):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.05)
    raise SystemExit("the server does not answer")


def send(client, commands):
    """Sends commands, lists of words, and waits for all replies. An error ends the run."""
    request = b""
    for words in commands:
        request += b"*%d\r\n" % len(words)
        request += b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in map(str.encode, words))
    client.sendall(request + b"PING\r\n")
    replies = b""
    while not replies.endswith(b"+PONG\r\n"):
        replies += client.recv(1 << 20)
    assert not replies.startswith(b"-") and b"\n-" not in replies, replies[:200]


def fill(port):
    client = connect(port)
    for begin in range(0, FILTERS, 1000):
        names = range(begin, begin + 1000)
        send(client, [["BF.RESERVE", f"user:{name}", "0.01", "100"] for name in names])
    send(client, [["BF.RESERVE", "shown", "0.001", str(CAPACITY)]])
    for begin in range(0, CAPACITY // 2, 50_000):
        keys = [f"key:{key:012}" for key in range(begin, begin + 50_000)]
        send(client, [["BF.MADD", "shown", *keys]])


def get(port, path):
    """Asks as a browser does that opens a connection, and returns the bytes of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    assert response.status == 200, f"{path}: {response.status} {body[:200]}"
    return len(body)


def measure_answers(port, requests):
    print(f"\n{FILTERS:,} filters: answers of the API, {requests} of each, milliseconds")
    print(f"{'':<28}{'p50':>8}{'p99':>8}{'max':>8}{'bytes':>9}   p99 <= {GOAL_MS}")
    for name, path, _ in ADDRESSES:
        waits = []
        for _ in range(requests):
            begin = time.perf_counter()
            size = get(port, path)
            waits.append((time.perf_counter() - begin) * 1000)
        waits.sort()
        p99 = waits[math.ceil(requests * 0.99) - 1]
        verdict = "met" if p99 <= GOAL_MS else "MISSED"
        middle = statistics.median(waits)
        print(f"{name:<28}{middle:>8.2f}{p99:>8.2f}{waits[-1]:>8.2f}{size:>9}   {verdict}", flush=True)


@contextlib.contextmanager
def open_page(port):
    """Three tabs that ask every second."""
    done = threading.Event()

    def tabs():
        while True:
            for _, path, is_polled in ADDRESSES:
                if is_polled:
                    get(port, path)
            if done.wait(1):
                break

    thread = threading.Thread(target=tabs)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def throughput(port, queries):
    """Queries a second, as redis-benchmark counts them."""
    command = ["redis-benchmark", "-p", str(port), "-n", str(queries), "-P", "100", "-c", "4"]
    command += ["-r", str(CAPACITY), "--csv", "BF.EXISTS", "shown", "key:__rand_int__"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    row = [line for line in lines if line.startswith('"BF.EXISTS')][-1]
    return float(row.split('","')[1])


def interval(ratios):
    """The 95% interval of the median, by the order of the ratios: it assumes nothing of their distribution."""
    count, cut = len(ratios), 0
    chance = lambda most: sum(math.comb(count, heads) for heads in range(most + 1)) / 2**count
    while chance(cut) <= 0.025:
        cut += 1
    cut = max(0, cut - 1)
    ordered = sorted(ratios)
    return ordered[cut], ordered[-1 - cut]


def measure_throughput(ports, rounds, seconds):
    resp, web = ports
    queries = int(throughput(resp, 400_000) * seconds)
    print(f"\nBF.EXISTS pipelined 100 on 4 connections, {queries:,} a run: queries a second")
    print(f"{'round':>5}{'page open':>14}{'closed':>14}{'ratio':>9}")
    ratios = []
    for number in range(rounds):
        runs = {}
        for is_open in [True, False] if number % 2 == 0 else [False, True]:
            with open_page(web) if is_open else contextlib.nullcontext():
                runs[is_open] = throughput(resp, queries)
        ratios.append(runs[True] / runs[False])
        print(f"{number + 1:>5}{runs[True]:>14,.0f}{runs[False]:>14,.0f}{ratios[-1]:>9.3f}", flush=True)
    low, high = interval(ratios)
    verdict = "met" if high >= GOAL_SHARE else "MISSED"
    print(f"ratio {statistics.median(ratios):.3f} [{low:.3f}, {high:.3f}], 95% interval of {rounds} pairs")
    print(f"goal: the interval reaches {GOAL_SHARE}: {verdict}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary", help="the inbloom to start")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=2, help="of each half of a round")
    parser.add_argument("--requests", type=int, default=500, help="of each address")
    options = parser.parse_args()
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next(line.split(": ")[1].strip() for line in file if line.startswith("model name"))
    version = subprocess.run([options.binary, "--version"], capture_output=True, text=True, check=True)
    print(f"date      {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC")
    print(f"command   bench/page.py --rounds {options.rounds} --seconds {options.seconds:g}")
    print(f"program   {version.stdout.strip()}, release build")
    print(f"processor {model}, {os.cpu_count()} cores, {platform.system()} {platform.release()}")
    print(f"load      {' '.join(f'{load:.2f}' for load in os.getloadavg())}", flush=True)
    with server(options.binary) as ports:
        fill(ports[0])
        measure_answers(ports[1], options.requests)
        measure_throughput(ports, options.rounds, options.seconds)


if __name__ == "__main__":
    main()
