"""What both spiders share: a URL list in, one line of JSON out.

Scrapy's defaults are kept, concurrency included: this is what its users get. Only politeness that has nothing to do with
limits is off (robots.txt, cookies, the log).

A page is a 200. A page is lost when Scrapy gave it up, or had not got it when the time was over. A request is refused
when the answer is 403, 429 or 503. `requests` are those sent, retries included.
"""

import argparse
import json
import time

import scrapy
from scrapy.crawler import CrawlerProcess

REFUSALS = (403, 429, 503)


class Pages(scrapy.Spider):
    name = "pages"

    async def start(self):
        with open(self.list) as urls:
            for url in urls:
                if url.strip():
                    yield scrapy.Request(url.strip(), dont_filter=True)

    def parse(self, response):
        pass


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("list", help="a file with one URL per line")
    parser.add_argument("--seconds-max", type=float, default=0, help="stop after so long; 0: when done")
    parser.add_argument("--concurrency", type=int, help="requests at a time, in all and per host; default: Scrapy's")
    return parser.parse_args()


def crawl(**settings):
    args = arguments()
    if args.concurrency:
        settings |= {"CONCURRENT_REQUESTS": args.concurrency, "CONCURRENT_REQUESTS_PER_DOMAIN": args.concurrency}
    process = CrawlerProcess(
        {
            "LOG_ENABLED": False,
            "ROBOTSTXT_OBEY": False,
            "COOKIES_ENABLED": False,
            "TELNETCONSOLE_ENABLED": False,
            "CLOSESPIDER_TIMEOUT": args.seconds_max,
            **settings,
        }
    )
    crawler = process.create_crawler(Pages)
    process.crawl(crawler, list=args.list)
    begin = time.monotonic()
    process.start()
    seconds = time.monotonic() - begin

    stats = crawler.stats.get_stats()
    with open(args.list) as urls:
        asked = sum(1 for url in urls if url.strip())
    pages = stats.get("downloader/response_status_count/200", 0)
    report = {
        "pages": pages,
        "lost": asked - pages,
        "requests": stats.get("downloader/request_count", 0),
        "refused": sum(stats.get(f"downloader/response_status_count/{status}", 0) for status in REFUSALS),
        "seconds": round(seconds, 2),
    }
    print(json.dumps(report))
