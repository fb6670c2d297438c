"""Fetches URLs with Scrapy and prints its stats.

Usage: spider.py SETTINGS URL…, with the settings as JSON.
"""

import json
import sys

import scrapy
from scrapy.crawler import CrawlerProcess


class Pages(scrapy.Spider):
    name = "pages"

    async def start(self):
        for url in self.urls:
            yield scrapy.Request(url, dont_filter=True)

    def parse(self, response):
        # Links of one level are scheduled as in any crawl.
        if "deeper" not in response.meta and self.deeper:
            yield scrapy.Request(response.url + "?again", meta={"deeper": True})


settings = {"LOG_ENABLED": False, "TELNETCONSOLE_ENABLED": False, **json.loads(sys.argv[1])}
process = CrawlerProcess(settings)
crawler = process.create_crawler(Pages)
process.crawl(crawler, urls=sys.argv[2:], deeper=settings.get("DEEPER", False))
process.start()
print(json.dumps(crawler.stats.get_stats(), default=str))
