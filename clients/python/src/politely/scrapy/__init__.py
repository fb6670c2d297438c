"""Scrapy, directed by a coordinator: no request leaves without its permit, and a refused one is not lost.

>>> ADDONS = {"politely.scrapy.Politely": 500}
>>> POLITELY_COORDINATOR = "http://127.0.0.1:7077"

That is all of it. The settings:

=====================  ==============================================================
POLITELY_COORDINATOR   the coordinator's URL; default ``http://127.0.0.1:7077``;
                       of several that share their keys a list, or with commas
POLITELY_TOKEN         its token; default the environment's ``POLITELY_TOKEN``
POLITELY_CLIENT        what requests are booked under; default host and process id
POLITELY_PATIENCE      seconds a parked host is waited for before its requests are
                       dropped with `IgnoreRequest`; default 3600
=====================  ==============================================================

A request's ``meta["politely_key"]`` names its key where the URL is not to decide.

**Why not only a middleware.** A request that waits in a downloader middleware occupies one of Scrapy's CONCURRENT_REQUESTS, so that
sixteen requests to one slow host stop the crawl of all others; raising the number only moves the point. So waiting is
done where requests cost nothing: in the scheduler. `PermitFirstQueue` keeps the queued requests by host and asks the
coordinator, in one call for all hosts, for the first permits to be had; the engine gets a request only when it may leave at once.
CONCURRENT_REQUESTS then bounds what is really under way. `PolitelyMiddleware` alone works as well, for those
with a priority queue of their own, and waits in the downloader; then CONCURRENT_REQUESTS must be well above what all hosts together keep
waiting.
"""

from politely.scrapy.addon import Politely
from politely.scrapy.middleware import PolitelyMiddleware
from politely.scrapy.queue import PermitFirstQueue

__all__ = ["PermitFirstQueue", "Politely", "PolitelyMiddleware"]
