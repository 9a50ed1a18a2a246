"""Files: mapped, saved, damaged, shared between processes, and the same for every program of inbloom."""

import errno
import multiprocessing
import os
import random
import subprocess
import sys

import inbloom
import pytest
from conftest import module

KEYS = [f"https://example.org/{number}" for number in range(5000)]


def saved(path, kind="blocked", **more):
    if kind == "ribbon":
        filter = inbloom.build(KEYS[:2500], 0.01)
    else:
        filter = inbloom.Filter(5000, 0.01, kind, **more)
        filter.update(KEYS[:2500])
    filter.save(path)
    return filter


def test_open_is_read_only_and_writable_changes_only_what_is_saved(tmp_path):
    path = tmp_path / "seen.ib"
    saved(path)
    with inbloom.open(path) as seen:
        assert KEYS[0] in seen and seen.info()["read_only"] and seen.info()["memory"] == 0
        for call in (lambda: seen.add("new"), lambda: seen.update(["new"]), seen.clear, seen.save):
            with pytest.raises(inbloom.ReadOnlyError, match="writable=True"):
                call()
    with pytest.raises(inbloom.ClosedError):
        KEYS[0] in seen
    with inbloom.open(str(path), writable=True) as seen:
        assert seen.add("new")
        assert "new" not in inbloom.open(path)
    assert "new" in inbloom.open(path)
    with pytest.raises(RuntimeError), inbloom.open(path, writable=True) as seen:
        seen.add("newer")
        raise RuntimeError
    assert "newer" not in inbloom.open(path)
    copied = inbloom.open(path).copy()
    assert copied.add("newer")
    with pytest.raises(inbloom.ParameterError, match="path"):
        copied.save()


def test_files_that_are_not_there_or_no_filters_raise_what_python_raises(tmp_path):
    with pytest.raises(FileNotFoundError) as raised:
        inbloom.open(tmp_path / "none.ib")
    assert raised.value.errno == errno.ENOENT
    with pytest.raises(IsADirectoryError) as raised:
        inbloom.open(tmp_path)
    assert raised.value.errno == errno.EISDIR
    (tmp_path / "text").write_text("no filter at all, but a text of some length" * 10)
    with pytest.raises(inbloom.FormatError):
        inbloom.open(tmp_path / "text")
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(inbloom.FormatError):
        inbloom.open(tmp_path / "empty")
    with pytest.raises(FileNotFoundError) as raised:
        inbloom.Filter(10).save(tmp_path / "no" / "folder" / "seen.ib")
    assert raised.value.errno == errno.ENOENT
    with pytest.raises(inbloom.Error):
        inbloom.open(tmp_path / "text", format="nonsense")


def test_files_of_other_programs(command, tmp_path):
    (tmp_path / "keys").write_text("\n".join(KEYS) + "\n")
    arguments = [command, "build", "--format", "guava", "-o", "keys.guava", "keys"]
    subprocess.run(arguments, cwd=tmp_path, check=True, stderr=subprocess.DEVNULL)
    opened = inbloom.open(tmp_path / "keys.guava")
    assert opened.contains_many(KEYS).count() == len(KEYS)
    assert opened.info()["format"] == "guava"
    again = inbloom.from_bytes((tmp_path / "keys.guava").read_bytes())
    assert again == opened


@pytest.mark.parametrize("kind", ["blocked", "classic", "cuckoo", "scalable", "ribbon", "counting"])
def test_the_command_the_server_and_python_answer_alike(kind, command, server, tmp_path):
    """Those of the library too: the command and the server are made of it."""
    redis = module("redis")
    path = server.files / "seen.ib"
    filter = saved(path, kind)
    here = [key in filter for key in KEYS]
    assert inbloom.open(path).contains_many(KEYS) == here
    lines = "".join(f"{key}\n" for key in KEYS).encode()
    checked = subprocess.run(
        [command, "check", str(path)], input=lines, stdout=subprocess.PIPE, check=True
    ).stdout
    assert checked.decode().splitlines() == [key for key, found in zip(KEYS, here) if found]
    with redis.Redis(port=server.port) as client:
        client.execute_command("IB.OPEN", "seen", "seen.ib")
        assert [
            bool(found) for found in client.execute_command("BF.MEXISTS", "seen", *KEYS)
        ] == here
    # And back: what the command has built, Python opens.
    (tmp_path / "keys").write_bytes(lines)
    made = [
        command,
        "build",
        "--kind",
        kind,
        "-n",
        "5000",
        "-o",
        str(tmp_path / "made.ib"),
        str(tmp_path / "keys"),
    ]
    subprocess.run(made, check=True, stderr=subprocess.DEVNULL)
    assert inbloom.open(tmp_path / "made.ib").contains_many(KEYS).count() == len(KEYS)


def test_the_command_and_python_agree_on_integers(command, tmp_path):
    filter = inbloom.Filter(5000, 0.001, int_width=8)
    filter.update(range(1000))
    filter.save(tmp_path / "ids.ib")
    lines = "".join(f"{number}\n" for number in range(2000)).encode()
    checked = subprocess.run(
        [command, "check", str(tmp_path / "ids.ib")],
        input=lines,
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    assert [int(line) for line in checked.split()] == [
        number for number in range(2000) if number in filter
    ]


def damaged(data, seed):
    """The bytes of a file with a mistake: bits flipped, cut off, something doubled or put in."""
    numbers = random.Random(seed)
    data = bytearray(data)
    how = seed % 5
    place = numbers.randrange(len(data))
    if how == 0:
        data[place] ^= 1 << numbers.randrange(8)
    elif how == 1:
        del data[place:]
    elif how == 2:
        data[place : place + 8] = numbers.randbytes(8)
        data[place % 64] ^= 0xFF
    elif how == 3:
        del data[place : place + numbers.randrange(1, 64)]
    else:
        at = numbers.randrange(min(128, len(data)))
        data[at] ^= 1 << numbers.randrange(8)
    return bytes(data)


def test_200_damaged_files_raise_and_none_crashes(tmp_path):
    """In a process of their own, so that a crash is an answer and not the end of the tests."""
    kinds = ["blocked", "classic", "counting", "cuckoo", "scalable", "ribbon"]
    for kind in kinds:
        saved(tmp_path / kind, kind)
    count = 0
    for seed in range(200):
        whole = (tmp_path / kinds[seed % len(kinds)]).read_bytes()
        broken = damaged(whole, seed)
        if broken != whole:
            (tmp_path / f"damaged-{seed}").write_bytes(broken)
            count += 1
    script = """
import inbloom, sys, pathlib
raised = 0
keys = ["https://example.org/%d" % number for number in range(3000)]
for path in sorted(pathlib.Path(sys.argv[1]).glob("damaged-*")):
    for read in (lambda: inbloom.open(path, verify=True), lambda: inbloom.from_bytes(path.read_bytes())):
        try:
            read()
            print("no error:", path)
        except (inbloom.Error, OSError):
            raised += 1
    # Without verify=True only the header is checked: answers may be wrong then, and that is all.
    for writable in (False, True):
        try:
            filter = inbloom.open(path, writable=writable)
            filter.contains_many(keys)
            filter.info()
            if writable:
                filter.add_many(keys)
        except (inbloom.Error, OSError):
            pass
print(raised)
"""
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, check=True, text=True
    )
    assert run.stdout == f"{2 * count}\n", run.stdout
    assert count == 200


def memory_of(process, path):
    """Kilobytes of a mapped file that a process has in memory, and its share of them."""
    resident = shared = 0
    inside = False
    with open(f"/proc/{process}/smaps") as lines:
        for line in lines:
            if "-" in line.split(" ", 1)[0] and ":" not in line.split(" ", 1)[0]:
                inside = line.rstrip().endswith(str(path))
            elif inside and line.startswith("Rss:"):
                resident += int(line.split()[1])
            elif inside and line.startswith("Pss:"):
                shared += int(line.split()[1])
    return resident, shared


def use(path, ready, go):
    """A process that reads all pages of a mapped filter and waits."""
    filter = inbloom.open(path) if isinstance(path, str) else path
    found = filter.contains_many([f"key {number}" for number in range(300_000)])
    ready.put((os.getpid(), found.count()))
    go.wait(120)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_that_open_one_file_share_its_pages(method, tmp_path):
    if not sys.platform.startswith("linux"):
        from conftest import skip

        skip("only Linux tells the share of a process")
    path = tmp_path / "seen.ib"
    filter = inbloom.Filter(8_000_000, 0.01)
    filter.update(f"key {number}" for number in range(1000))
    filter.save(path)
    context = multiprocessing.get_context(method)
    ready, go = context.Queue(), context.Event()
    # Forked processes take the open filter along; spawned ones open the file.
    given = inbloom.open(path) if method == "fork" else str(path)
    processes = [context.Process(target=use, args=(given, ready, go)) for _ in range(4)]
    for process in processes:
        process.start()
    answers = [ready.get(timeout=120) for _ in processes]
    measured = [memory_of(number, path) for number, _ in answers]
    go.set()
    for process in processes:
        process.join(60)
    size = path.stat().st_size // 1024
    print(f"{method}: file {size} kB; RSS and PSS of it in each: {measured}")
    assert all(found >= 1000 for _, found in answers)
    assert all(resident > size * 0.9 for resident, _ in measured), measured
    # With four processes at it, each has a quarter; Linux rounds each page's share down.
    assert sum(share for _, share in measured) < size * 1.1, measured
