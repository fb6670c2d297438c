"""The add-on that sets the settings of Scrapy together."""

from __future__ import annotations

from scrapy.settings import BaseSettings
from scrapy.utils.misc import load_object

from politely_client.scrapy.middleware import PolitelyMiddleware
from politely_client.scrapy.queue import PermitFirstQueue
from politely_client.scrapy.robots import TellingRobotParser
from politely_client.scrapy.scheduler import FrontierScheduler


class Politely:
    """A Scrapy add-on: sets the middleware and the queue, and turns off Scrapy's own throttles.

    Settings of the project take precedence.
    """

    def update_settings(self, settings: BaseSettings) -> None:
        scheduler = load_object(settings["SCHEDULER"])
        # Scrapy answers `issubclass` by the methods of a class, so every scheduler is a subclass.
        if FrontierScheduler in scheduler.__mro__:
            scheduler.crawl_of(settings)  # Scrapy hides errors of a scheduler
        middlewares = settings.getdict("DOWNLOADER_MIDDLEWARES")
        # Next to the network, the middleware sees the requests and responses as they are sent and
        # received: before caches, redirects and retries.
        middlewares.setdefault(PolitelyMiddleware, 950)
        settings.set("DOWNLOADER_MIDDLEWARES", middlewares, "addon")
        settings.set("SCHEDULER_PRIORITY_QUEUE", PermitFirstQueue, "addon")
        # The coordinator limits the requests under way per host. A request must not wait after its
        # permit was granted.
        settings.set(
            "CONCURRENT_REQUESTS_PER_DOMAIN", settings.getint("CONCURRENT_REQUESTS"), "addon"
        )
        settings.set("ROBOTSTXT_PARSER", TellingRobotParser, "addon")
        settings.set("DOWNLOAD_DELAY", 0, "addon")
        settings.set("AUTOTHROTTLE_ENABLED", False, "addon")
