"""A robots.txt parser for Scrapy that also sends the Crawl-delay, which Scrapy ignores, to the
coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.robotstxt import ProtegoRobotParser
from scrapy.utils.python import to_unicode

from politely_client.scrapy.desk import Desk

if TYPE_CHECKING:
    from scrapy.crawler import Crawler


class TellingRobotParser(ProtegoRobotParser):
    """The parser for ROBOTSTXT_PARSER."""

    _desk: Desk

    @classmethod
    def from_crawler(cls, crawler: Crawler, robotstxt_body: bytes) -> TellingRobotParser:
        parser = super().from_crawler(crawler, robotstxt_body)
        parser._desk = Desk.of(crawler)
        return parser

    def allowed(self, url: str | bytes, user_agent: str | bytes) -> bool:
        agent = to_unicode(user_agent)
        delays = [self.rp.crawl_delay(agent) or 0.0]
        if rate := self.rp.request_rate(agent):
            delays.append(rate.seconds / rate.requests)
        if (delay := max(delays)) > 0:
            self._desk.crawl_delay(to_unicode(url), delay)
        return super().allowed(url, user_agent)
