"""Filters of duplicate requests for Scrapy, in a fraction of the memory of its own.

In settings.py, for one crawler::

    DUPEFILTER_CLASS = "inbloom.scrapy.DupeFilter"
    JOBDIR = "crawls/news"

or for many crawlers that share a server (inbloom, or Redis with RedisBloom)::

    DUPEFILTER_CLASS = "inbloom.scrapy.RemoteDupeFilter"
    INBLOOM_URL = "redis://localhost:7379"

A filter may take a new request for one that it has seen, at the rate of INBLOOM_RATE, and the page is then
not fetched. At the default, one in a billion, that is 0.1 pages of 100 million in expectation. The closing
statistics have the expectation for this crawl: inbloom/expected_lost.

=================== ==================== ========================================================
setting             default              meaning
=================== ==================== ========================================================
INBLOOM_RATE        1e-9                 share of new requests that may be lost
INBLOOM_ITEMS       100000               requests planned at first; the filter grows beyond
INBLOOM_WINDOW      none                 "7d": only requests of the last 7 days count as seen
INBLOOM_SAVE_EVERY  1000000              DupeFilter: requests between two saves of its file
INBLOOM_URL         redis://localhost    RemoteDupeFilter: the server
INBLOOM_KEY         %(spider)s:seen      RemoteDupeFilter: the name of the filter
=================== ==================== ========================================================

A window does not grow: INBLOOM_ITEMS must be the number of requests in that time.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from scrapy.dupefilters import BaseDupeFilter
from scrapy.utils.request import RequestFingerprinter

import inbloom

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler

__all__ = ["DupeFilter", "RemoteDupeFilter"]

logger = logging.getLogger(__name__)

RATE = 1e-9
ITEMS = 100_000
SAVE_EVERY = 1_000_000


class _Filter(BaseDupeFilter):
    """What both have: fingerprints, statistics, the log of what was filtered."""

    def __init__(self, crawler: Crawler | None = None) -> None:
        self.fingerprinter: Any = (
            getattr(crawler, "request_fingerprinter", None) or RequestFingerprinter()
        )
        self.stats: Any = getattr(crawler, "stats", None)
        self.debug = crawler is not None and crawler.settings.getbool("DUPEFILTER_DEBUG")
        self._has_logged = False
        # The sum, over all new requests, of the chance that one had been lost in its place.
        self._expected_lost = 0.0

    def log(self, request: Request, spider: Spider) -> None:
        """Logs a request that was filtered: the first one, or all with DUPEFILTER_DEBUG."""
        if self.debug or not self._has_logged:
            more = (
                "" if self.debug else " - no more duplicates will be shown (see DUPEFILTER_DEBUG)"
            )
            logger.debug(
                "Filtered duplicate request: %s%s", request, more, extra={"spider": spider}
            )
            self._has_logged = True
        if self.stats is not None:
            self.stats.inc_value("dupefilter/filtered")

    def _report(self, values: dict[str, Any]) -> None:
        if self.stats is not None:
            for name, value in values.items():
                self.stats.set_value(f"inbloom/{name}", value)
        told = ", ".join(
            f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in values.items()
        )
        logger.info("inbloom: %s", told)


class DupeFilter(_Filter):
    """A filter in a file of the job's folder, which grows, and loses nothing when it is killed.

    The file requests.seen.ib is the filter, as any program of inbloom opens it. It is replaced as a whole,
    at the end and after every INBLOOM_SAVE_EVERY new requests. Between, each new fingerprint is appended to
    requests.seen.log before request_seen returns: one write, which a kill does not undo. (A
    power loss may undo the last seconds of them, as with Scrapy's own filter.) Without JOBDIR
    nothing is written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        rate: float = RATE,
        items: int = ITEMS,
        window: str | float | None = None,
        save_every: int = SAVE_EVERY,
        crawler: Crawler | None = None,
    ) -> None:
        super().__init__(crawler)
        self._plan: dict[str, Any] = {"items": items, "rate": rate, "kind": "scalable"}
        if window is not None:
            self._plan |= {"kind": "window", "window": window}
        self._save_every = save_every
        self._unsaved = 0
        self._recovered = 0
        self._file = None if path is None else Path(path, "requests.seen.ib")
        self._log_path = None if path is None else Path(path, "requests.seen.log")
        self._log: BinaryIO | None = None
        self._filter: inbloom.Filter | None = None
        self._rate_now = 0.0
        self._rate_until = 0

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Creates the filter from the settings of a crawler."""
        settings = crawler.settings
        return cls(
            settings.get("JOBDIR") or None,
            rate=settings.getfloat("INBLOOM_RATE", RATE),
            items=settings.getint("INBLOOM_ITEMS", ITEMS),
            window=settings.get("INBLOOM_WINDOW"),
            save_every=settings.getint("INBLOOM_SAVE_EVERY", SAVE_EVERY),
            crawler=crawler,
        )

    def open(self) -> None:
        """Opens the file, or begins one, and adds what the log has beyond it."""
        if self._file is None or self._log_path is None:
            self._filter = inbloom.Filter(**self._plan)
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        if self._file.exists():
            self._filter = inbloom.open(self._file, writable=True, verify=True)
            self._check_plan(self._filter)
        else:
            self._filter = inbloom.Filter(**self._plan)
        self._log = self._log_path.open("a+b", buffering=0)
        if _is_locked_by_others(self._log):
            raise RuntimeError(f"{self._log_path} is in use: another crawler has this JOBDIR")
        self._recover(self._filter, self._log)

    def _check_plan(self, filter: inbloom.Filter) -> None:
        """Reports where settings and file differ. The file is kept, because it has the fingerprints."""
        info = filter.info()
        if info["kind"] != self._plan["kind"] or info["target_rate"] != self._plan["rate"]:
            logger.warning(
                "%s is a %s filter with a rate of %g, but the settings ask for %s with %g: "
                "delete the file to start with a new filter",
                self._file,
                info["kind"],
                info["target_rate"],
                self._plan["kind"],
                self._plan["rate"],
            )

    def _recover(self, filter: inbloom.Filter, log: BinaryIO) -> None:
        """Adds the fingerprints of the log, which the file may have or not."""
        log.seek(0)
        data = log.read()
        records, end = _records(data)
        if filter.kind == "window" and records:
            # Each at its time: the window forgets what is old.
            for at, fingerprint in records:
                filter.advance(at)
                filter.add(fingerprint)
            filter.advance()  # By the system's clock again.
        else:
            filter.update([fingerprint for _, fingerprint in records])
        self._recovered = self._unsaved = len(records)
        if end < len(data):
            # Half a record: its request_seen never returned.
            log.truncate(end)
        log.seek(0, os.SEEK_END)

    def request_seen(self, request: Request) -> bool:
        """Returns whether the request was probably seen before, and notes it otherwise."""
        assert self._filter is not None, "open() comes first"
        fingerprint = self.fingerprinter.fingerprint(request)
        if not self._filter.add_if_absent(fingerprint):
            return True
        if self._unsaved >= self._rate_until:
            # The rate moves slowly; it is asked for now and then.
            self._rate_now = self._filter.info()["current_rate"]
            self._rate_until = self._unsaved + max(100, self._unsaved // 8)
        self._expected_lost += self._rate_now
        self._unsaved += 1
        if self._log is not None:
            self._log.write(_record(fingerprint))
            if self._unsaved >= self._save_every:
                self._save()
        return False

    def _save(self) -> None:
        assert self._filter is not None
        if self._file is None or self._log is None:
            return
        # First the file, then the log: killed between the two, the log is added again.
        self._filter.save(self._file)
        self._log.truncate(0)
        self._unsaved = self._rate_until = 0

    def close(self, reason: str) -> None:
        """Saves the file and reports how many requests it holds, and how many were lost in expectation."""
        if self._filter is None:
            return
        self._save()
        if self._log is not None:
            self._log.close()
        info = self._filter.info()
        self._report(
            {
                "requests": round(info["estimated_items"]),
                "bytes": info["bytes"],
                "recovered": self._recovered,
                "expected_lost": self._expected_lost,
            }
        )
        self._filter.close()
        self._filter = None


def _is_locked_by_others(log: BinaryIO) -> bool:
    try:
        import fcntl
    except ImportError:
        return False  # Windows has no such locks.
    try:
        fcntl.flock(log.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def _record(fingerprint: bytes) -> bytes:
    """A record of the log: the length of the fingerprint, the time in milliseconds, the fingerprint."""
    now = int(time.time() * 1000)
    return len(fingerprint).to_bytes(2, "little") + now.to_bytes(8, "little") + fingerprint


def _records(data: bytes) -> tuple[list[tuple[float, bytes]], int]:
    """The times and fingerprints of a log, and where its last whole record ends."""
    records, place = [], 0
    while place + 10 <= len(data):
        end = place + 10 + int.from_bytes(data[place : place + 2], "little")
        if end > len(data):
            break
        at = int.from_bytes(data[place + 2 : place + 10], "little") / 1000
        records.append((at, data[place + 10 : end]))
        place = end
    return records, place


class RemoteDupeFilter(_Filter):
    """A filter on a server, for any number of crawlers: inbloom's, or Redis with RedisBloom.

    One BF.INSERT for each request tells whether it is new and notes it, for all crawlers at once. Scrapy calls
    a filter synchronously, so that each request waits for the server: below a tenth of a millisecond on one
    machine.

    A connection that breaks is made anew, and the command sent again. If the server had noted the
    request and only its answer was lost, the request is then taken for seen. Such requests are counted as
    inbloom/uncertain. It works with the scheduler of scrapy-redis, which calls from_spider.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        rate: float = RATE,
        items: int = ITEMS,
        window: str | None = None,
        crawler: Crawler | None = None,
    ) -> None:
        super().__init__(crawler)
        self._url, self._key = url, key
        self._rate, self._items, self._window = rate, items, window
        self._client: Any = None
        self._new = 0
        self._uncertain = 0

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Creates the filter from the settings of a crawler."""
        settings = crawler.settings
        spider = getattr(crawler.spider, "name", None) or getattr(
            crawler.spidercls, "name", "scrapy"
        )
        key = settings.get("INBLOOM_KEY", "%(spider)s:seen")
        return cls(
            settings.get("INBLOOM_URL", "redis://localhost"),
            key % {"spider": spider},
            rate=settings.getfloat("INBLOOM_RATE", RATE),
            items=settings.getint("INBLOOM_ITEMS", ITEMS),
            window=settings.get("INBLOOM_WINDOW"),
            crawler=crawler,
        )

    @classmethod
    def from_spider(cls, spider: Spider) -> Self:
        """Creates the filter for the scheduler of scrapy-redis, which does not call open."""
        filter = cls.from_crawler(spider.crawler)
        filter.open()
        return filter

    def open(self) -> None:
        """Connects, and reserves the filter unless another crawler has."""
        import redis
        from redis.backoff import ExponentialBackoff
        from redis.retry import Retry

        if self._client is not None:
            return
        # Retries are ours: a command that is sent twice must be known.
        self._client = redis.Redis.from_url(self._url, retry=Retry(ExponentialBackoff(1, 0.05), 0))
        self._reserve()

    def _reserve(self) -> None:
        import redis

        reserve: list[Any] = ["BF.RESERVE", self._key, repr(self._rate), self._items]
        if self._window is not None:
            reserve += ["WINDOW", self._window]
        try:
            self._client.execute_command(*reserve)
        except redis.ResponseError as error:
            if "exists" not in str(error):
                raise

    def request_seen(self, request: Request) -> bool:
        """Returns whether any crawler has probably seen the request, and notes it otherwise."""
        fingerprint = self.fingerprinter.fingerprint(request)
        is_new = self._add(fingerprint)
        self._new += is_new
        return not is_new

    def _add(self, fingerprint: bytes) -> bool:
        import redis

        # About a minute in all: a server that is started again is back by then.
        waits = [0.05, 0.2, 0.5, 1, 2, 4, 8, 15, 30]
        is_certain = True
        while True:
            try:
                # Never makes a filter by itself, which would have the server's own rate.
                answer = self._client.execute_command(
                    "BF.INSERT", self._key, "NOCREATE", "ITEMS", fingerprint
                )
                is_new = bool(answer[0])
                self._uncertain += not is_certain and not is_new
                return is_new
            except redis.ResponseError as error:
                # Somebody has cleared it.
                if "not found" not in str(error).lower():
                    raise
                self._reserve()
            except (redis.ConnectionError, redis.TimeoutError) as error:
                if not waits:
                    raise
                # Refused before it was sent, it cannot have been noted.
                is_certain = is_certain and "refused" in str(error).lower()
                time.sleep(waits.pop(0))

    def clear(self) -> None:
        """Deletes the filter on the server: scrapy-redis asks for it unless SCHEDULER_PERSIST is set."""
        self._client.delete(self._key)

    def close(self, reason: str) -> None:
        """Reports how many requests were new, and how many were lost in expectation."""
        if self._client is None:
            return
        self._report(
            {
                "requests": self._new,
                "uncertain": self._uncertain,
                "expected_lost": self._new * self._rate,
            }
        )
        self._client.close()
        self._client = None
