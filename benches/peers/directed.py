"""Scrapy directed by a coordinator, its other settings as they come.

usage: POLITELY_COORDINATOR=URL PYTHONPATH=clients/python/src directed.py URLS [--seconds-max S] [--concurrency N]
"""

import os

from crawl import crawl

crawl(ADDONS={"politely_client.scrapy.Politely": 500}, POLITELY_COORDINATOR=os.environ["POLITELY_COORDINATOR"])
