"""A crawler of tests/local_site.py: python crawl.py URL LOG SETTINGS, with settings as JSON.

Every fingerprint for which request_seen has returned is written to LOG.
"""

import asyncio
import importlib
import json
import os
import sys
from pathlib import Path

import scrapy
from scrapy.crawler import CrawlerProcess

url, log, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
start, gate = settings.pop("START", [0]), settings.pop("GATE", None)
module, name = settings["DUPEFILTER_CLASS"].rsplit(".", 1)
base = getattr(importlib.import_module(module), name)
descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


class Logged(base):
    """Notes what it has returned."""

    def request_seen(self, request):
        seen = super().request_seen(request)
        os.write(descriptor, self.fingerprinter.fingerprint(request).hex().encode() + b"\n")
        return seen


class Spider(scrapy.Spider):
    name = "pages"

    async def start(self):
        # Crawlers that are to begin together wait for each other.
        Path(f"{log}.ready").touch()
        while gate and not Path(gate).exists():
            await asyncio.sleep(0.01)
        for number in start:
            yield scrapy.Request(f"{url}/page/{number}")

    def parse(self, response):
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)


process = CrawlerProcess(
    {
        "LOG_LEVEL": "INFO",
        "TELNETCONSOLE_ENABLED": False,
        "CONCURRENT_REQUESTS": 32,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 32,
        "DOWNLOAD_DELAY": 0,
        "RETRY_ENABLED": False,
        **settings,
        "DUPEFILTER_CLASS": Logged,
    }
)
process.crawl(Spider)
process.start()
