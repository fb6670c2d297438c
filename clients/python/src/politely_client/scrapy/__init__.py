"""Directs Scrapy by a coordinator: every request has a permit, and a refused request is retried.

>>> ADDONS = {"politely_client.scrapy.Politely": 500}
>>> POLITELY_COORDINATOR = "http://127.0.0.1:7077"

Nothing else is needed. The settings:

=====================  ==============================================================
POLITELY_COORDINATOR   the coordinator's URL; default: the variable of this name in the
                       environment, or the user's own one on this machine;
                       several that share their keys are a list, or have commas
POLITELY_TOKEN         its token; default the environment's ``POLITELY_TOKEN``
POLITELY_CLIENT        the client's name at the coordinator; default host and
                       process id
POLITELY_PATIENCE      seconds to wait for a parked host before its requests are
                       dropped with `IgnoreRequest`; default 3600
=====================  ==============================================================

A request's ``meta["politely_key"]`` names its key if the URL must not decide.

**Several processes, one crawl.** With a coordinator that has a frontier (``politely serve
--frontier DIR``), processes share the queue of the crawl. Each page is visited once:

>>> SCHEDULER = "politely_client.scrapy.FrontierScheduler"
>>> POLITELY_CRAWL = "news"

POLITELY_UNIT_PAGES (default 10) is the most pages of a host that a process takes at once.
POLITELY_LEASE (default 120) is the seconds after which the pages of a killed process return.

**Why not only a middleware.** A request that waits in a downloader middleware occupies one of
Scrapy's CONCURRENT_REQUESTS. Sixteen requests to one slow host would stop the crawl of all other
hosts, and a higher number only moves the limit. Therefore requests wait in the scheduler, where
they cost nothing. `PermitFirstQueue` keeps the queued requests by host. It asks the coordinator, in
one call for all hosts, for the first available permits. The engine gets a request only when it may
leave at once. CONCURRENT_REQUESTS then limits the requests that are really under way.

`PolitelyMiddleware` also works alone, for projects with a priority queue of their own. It then
waits in the downloader, and CONCURRENT_REQUESTS must be well above the number of waiting requests
of all hosts together.
"""

from politely_client.scrapy.addon import Politely
from politely_client.scrapy.middleware import PolitelyMiddleware
from politely_client.scrapy.queue import PermitFirstQueue
from politely_client.scrapy.scheduler import FrontierScheduler

__all__ = ["FrontierScheduler", "PermitFirstQueue", "Politely", "PolitelyMiddleware"]
