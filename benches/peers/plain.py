"""Scrapy as it comes. usage: plain.py URLS [--seconds-max S] [--concurrency N]"""

from crawl import crawl

crawl()
