"""Scrapy with AutoThrottle at its defaults. usage: autothrottle.py URLS [--seconds-max S] [--concurrency N]"""

from crawl import crawl

crawl(AUTOTHROTTLE_ENABLED=True)
