"""Scrapy itself crawls a site of our own, is stopped, killed and resumed."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import inbloom
import pytest
from conftest import free_port, module, skip, wait_for_port
from local_site import Site

HERE = Path(__file__).resolve().parent
LOCAL = "inbloom.scrapy.DupeFilter"
REMOTE = "inbloom.scrapy.RemoteDupeFilter"


@pytest.fixture
def site(request):
    site = Site(getattr(request, "param", 1500))
    yield site
    site.close()


def crawl(site, log, **settings):
    """Starts a crawler."""
    module("scrapy")
    arguments = [sys.executable, str(HERE / "crawl.py"), site.url, str(log), json.dumps(settings)]
    with open(f"{log}.stderr", "ab") as errors:
        return subprocess.Popen(arguments, stderr=errors)


def stats_of(log):
    """The last closing statistics."""
    text = Path(f"{log}.stderr").read_text()
    found = re.findall(r"'(inbloom/\w+)': ([-+.e\d]+)", text)
    return {name: float(value) for name, value in found}


def seen(log):
    return [bytes.fromhex(line) for line in Path(log).read_text().split("\n")[:-1]]


def check_stopped_and_resumed(site, folder, stops):
    log, job = folder / "log", folder / "job"
    step = site.pages // (stops + 2)
    for number in range(stops):
        crawler = crawl(site, log, DUPEFILTER_CLASS=LOCAL, JOBDIR=str(job))
        site.wait_for(step * (number + 1), crawler)
        crawler.send_signal(signal.SIGTERM)
        assert crawler.wait(300) == 0
        assert len(site.fetched) < site.pages, "it was stopped too late"
    crawler = crawl(site, log, DUPEFILTER_CLASS=LOCAL, JOBDIR=str(job))
    assert crawler.wait(900) == 0
    assert sorted(site.fetched) == list(range(site.pages)), "a page is lost"
    # robots.txt aside, each once: a page that was in flight may be fetched again after a stop.
    assert site.fetched.total() <= site.pages + stops * 32
    stats = stats_of(log)
    assert stats["inbloom/requests"] == pytest.approx(site.pages, abs=2)
    assert 0 < stats["inbloom/expected_lost"] < site.pages * 1e-9
    return stats


def check_killed(site, folder, kills):
    log, job = folder / "log", folder / "job"
    step, known = site.pages // (kills + 2), 0
    for number in range(kills):
        # Scrapy's queue is lost each time, so that every crawl begins at other pages.
        first = site.pages * number // kills
        crawler = crawl(
            site,
            log,
            DUPEFILTER_CLASS=LOCAL,
            JOBDIR=str(job),
            INBLOOM_SAVE_EVERY=max(50, site.pages // 10),
            START=list(range(first, first + site.pages // kills // 2)),
        )
        before = site.fetched.total()
        site.wait_for(before + step // 2, crawler)
        crawler.kill()
        crawler.wait(60)
        kept = opened(job)
        returned = seen(log)
        assert len(returned) > known, "this crawl has seen nothing"
        known = len(returned)
        assert returned and all(kept.contains_many(returned)), "a fingerprint is lost"
        kept.close()
        # What is left of Scrapy's own queue says nothing without the file that it writes at its end.
        shutil.rmtree(job / "requests.queue", ignore_errors=True)
    return len(set(seen(log)))


def opened(job):
    """The filter of a job, as a crawler would find it."""
    from inbloom.scrapy import DupeFilter

    dupes = DupeFilter(job)
    dupes.open()
    kept = dupes._filter.copy()
    dupes._log.close()
    return kept


def test_a_crawl_that_is_stopped_and_resumed_loses_no_page(site, tmp_path):
    check_stopped_and_resumed(site, tmp_path, stops=2)


def test_a_crawl_that_is_killed_loses_no_fingerprint(site, tmp_path):
    assert check_killed(site, tmp_path, kills=2) > 100


@pytest.mark.long
@pytest.mark.parametrize("site", [20_000], indirect=True)
def test_a_crawl_of_20000_pages_is_stopped_five_times(site, tmp_path):
    print(check_stopped_and_resumed(site, tmp_path, stops=5))


@pytest.mark.long
@pytest.mark.parametrize("site", [20_000], indirect=True)
def test_a_crawl_of_20000_pages_is_killed_five_times(site, tmp_path):
    print(check_killed(site, tmp_path, kills=5), "fingerprints")


def check_two_crawlers(site, server, folder):
    module("redis")
    logs = [folder / "one", folder / "two"]
    settings = {"DUPEFILTER_CLASS": REMOTE, "INBLOOM_URL": server.url, "INBLOOM_KEY": "pages"}
    # Both begin all over the site. Links lead both to all of it, and each goes where the other has not been.
    settings["GATE"] = str(folder / "gate")
    starts = list(range(0, site.pages, 20)), list(range(10, site.pages, 20))
    crawlers = [crawl(site, log, START=start, **settings) for log, start in zip(logs, starts)]
    while not all(Path(f"{log}.ready").exists() for log in logs):
        assert all(crawler.poll() is None for crawler in crawlers)
        time.sleep(0.05)
    (folder / "gate").touch()
    for crawler in crawlers:
        assert crawler.wait(900) == 0
    assert site.fetched.most_common(1)[0][1] == 1, "a page was fetched by both"
    assert sorted(site.fetched) == list(range(site.pages)), "a page is lost"
    new = [stats_of(log)["inbloom/requests"] for log in logs]
    assert sum(new) == site.pages and min(new) > 0
    return new


def test_two_crawlers_share_a_server(site, server, tmp_path):
    check_two_crawlers(site, server, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("site", [20_000], indirect=True)
def test_two_crawlers_share_20000_pages(site, server, tmp_path):
    print(check_two_crawlers(site, server, tmp_path))


class FakeRequest:
    """What the filters need of a request, with a fingerprint of our choice."""

    def __init__(self, number):
        self.number = number


class Fingerprinter:
    @staticmethod
    def fingerprint(request):
        return request.number.to_bytes(20, "little")


def local(path, **more):
    module("scrapy")
    from inbloom.scrapy import DupeFilter

    dupes = DupeFilter(path, **more)
    dupes.fingerprinter = Fingerprinter
    dupes.open()
    return dupes


def test_without_a_job_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dupes = local(None)
    assert not dupes.request_seen(FakeRequest(1)) and dupes.request_seen(FakeRequest(1))
    dupes.close("finished")
    assert not list(tmp_path.iterdir())


def test_the_log_is_added_to_the_file_and_a_half_record_left_out(tmp_path):
    dupes = local(tmp_path, save_every=100)
    for number in range(250):
        assert not dupes.request_seen(FakeRequest(number))
    # As after a kill: nothing is closed. The last record is cut.
    dupes._log.close()
    log = tmp_path / "requests.seen.log"
    assert 0 < log.stat().st_size < 100 * 30
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 3)
    dupes = local(tmp_path)
    assert all(dupes.request_seen(FakeRequest(number)) for number in range(249))
    assert not dupes.request_seen(FakeRequest(249))
    dupes.close("finished")
    assert log.stat().st_size == 0
    assert len(inbloom.open(tmp_path / "requests.seen.ib")) == 250


def test_one_crawler_at_a_time_has_a_job(tmp_path):
    dupes = local(tmp_path)
    with pytest.raises(RuntimeError, match="in use"):
        local(tmp_path)
    dupes.close("finished")
    local(tmp_path).close("finished")


def test_a_window_forgets_also_across_a_kill(tmp_path):
    dupes = local(tmp_path, window="1s", items=1000)
    assert not dupes.request_seen(FakeRequest(1))
    assert dupes.request_seen(FakeRequest(1))
    dupes._log.close()
    dupes = local(tmp_path, window="1s", items=1000)
    assert dupes.request_seen(FakeRequest(1))
    time.sleep(1.6)
    assert not dupes.request_seen(FakeRequest(1))
    dupes.close("finished")


def test_settings_that_differ_from_the_file_are_reported(tmp_path, caplog):
    local(tmp_path).close("finished")
    local(tmp_path, rate=1e-6).close("finished")
    assert "delete the file to start with a new filter" in caplog.text


def test_the_remote_filter_survives_a_server_that_starts_again(command, tmp_path):
    module("redis")
    module("scrapy")
    from conftest import Server
    from inbloom.scrapy import RemoteDupeFilter

    folder = tmp_path / "server"
    folder.mkdir()
    server = Server(command, folder)
    dupes = RemoteDupeFilter(server.url, "seen")
    dupes.fingerprinter = Fingerprinter
    dupes.open()
    assert not dupes.request_seen(FakeRequest(1)) and dupes.request_seen(FakeRequest(1))
    server.stop()
    server.start()
    assert dupes.request_seen(FakeRequest(1)) and not dupes.request_seen(FakeRequest(2))
    # Cleared by somebody, it is made anew at the rate of the settings, not the server's.
    dupes.clear()
    assert not dupes.request_seen(FakeRequest(1))
    info = dupes._client.execute_command("BF.INFO", "seen")
    assert info and dupes._client.type("seen") == b"MBbloom--"
    dupes.close("finished")
    server.stop()


@pytest.fixture
def redis_url():
    """A plain Redis, for the queue of scrapy-redis."""
    if shutil.which("redis-server") is None:
        skip("redis-server is not installed (Debian's package redis-server)")
    port = free_port()
    arguments = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
    wait_for_port(port, process)
    yield f"redis://127.0.0.1:{port}"
    process.terminate()
    process.wait(60)


def test_scrapy_redis_takes_the_remote_filter(server, redis_url):
    module("scrapy_redis")
    scrapy = module("scrapy")
    from scrapy.utils.test import get_crawler
    from scrapy_redis.scheduler import Scheduler

    settings = {"DUPEFILTER_CLASS": REMOTE, "INBLOOM_URL": server.url, "REDIS_URL": redis_url}

    class Spider(scrapy.Spider):
        name = "pages"

    crawler = get_crawler(Spider, settings)
    crawler.spider = Spider.from_crawler(crawler)
    scheduler = Scheduler.from_crawler(crawler)
    scheduler.open(crawler.spider)
    request = scrapy.Request("http://127.0.0.1/page/1")
    assert scheduler.enqueue_request(request)
    assert not scheduler.enqueue_request(request.copy())
    assert len(scheduler) == 1 and scheduler.next_request().url == request.url
    assert scheduler.df.request_seen(request)
    # Without SCHEDULER_PERSIST it forgets everything at the end.
    scheduler.close("finished")
    assert not scheduler.df.request_seen(request)


def memory_of(script):
    """The growth of a process' memory, in bytes, that a script prints."""
    run = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, check=True, text=True
    )
    return int(run.stdout)


def script(make, count):
    return f"""
import hashlib, gc, os
def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
class Request: pass
class Fingerprinter:
    def fingerprint(self, request):
        return hashlib.sha1(request.number.to_bytes(8, "little")).digest()
{make}
dupes.fingerprinter = Fingerprinter()
dupes.open()
request = Request()
before = resident()
for number in range({count}):
    request.number = number
    dupes.request_seen(request)
print(resident() - before)
"""


OURS = "from inbloom.scrapy import DupeFilter; dupes = DupeFilter()"
SCRAPYS = "from scrapy.dupefilters import RFPDupeFilter; dupes = RFPDupeFilter()"


def check_memory(count):
    if not sys.platform.startswith("linux"):
        skip("only Linux tells the memory of a process so")
    module("scrapy")
    ours, scrapys = memory_of(script(OURS, count)), memory_of(script(SCRAPYS, count))
    print(f"{count} fingerprints: inbloom {ours / 1e6:.0f} MB, Scrapy {scrapys / 1e6:.0f} MB")
    return ours, scrapys


def test_memory_is_a_fraction_of_scrapys():
    ours, scrapys = check_memory(200_000)
    assert ours < scrapys / 3, (ours, scrapys)


@pytest.mark.long
def test_memory_at_10_million_fingerprints():
    ours, scrapys = check_memory(10_000_000)
    assert ours < scrapys / 5, (ours, scrapys)
