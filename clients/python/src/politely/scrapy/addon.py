"""The settings that go together."""

from __future__ import annotations

from scrapy.settings import BaseSettings

from politely.scrapy.middleware import PolitelyMiddleware
from politely.scrapy.queue import PermitFirstQueue
from politely.scrapy.robots import TellingRobotParser


class Politely:
    """A Scrapy add-on: middleware, queue, and none of Scrapy's own throttles. What a project sets itself stays."""

    def update_settings(self, settings: BaseSettings) -> None:
        middlewares = settings.getdict("DOWNLOADER_MIDDLEWARES")
        # Next to the network: it sees what is really sent and what really came, before caches, redirects and retries.
        middlewares.setdefault(PolitelyMiddleware, 950)
        settings.set("DOWNLOADER_MIDDLEWARES", middlewares, "addon")
        settings.set("SCHEDULER_PRIORITY_QUEUE", PermitFirstQueue, "addon")
        # How many may be under way per host is the coordinator's word; a request must not wait after its permit came.
        settings.set(
            "CONCURRENT_REQUESTS_PER_DOMAIN", settings.getint("CONCURRENT_REQUESTS"), "addon"
        )
        settings.set("ROBOTSTXT_PARSER", TellingRobotParser, "addon")
        settings.set("DOWNLOAD_DELAY", 0, "addon")
        settings.set("AUTOTHROTTLE_ENABLED", False, "addon")
