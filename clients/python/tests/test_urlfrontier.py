"""Tests the gRPC service with a client that grpcio generates from our .proto."""

import importlib
import sys
import time

import grpc
import pytest
from conftest import REPOSITORY
from grpc_tools import protoc

PROTO = REPOSITORY / "crates/server/proto"
FAST = ("--law", "fixed", "--rate", "1000", "--burst", "100", "--in-flight", "100")
TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """Returns the generated modules: messages and stubs."""
    out = tmp_path_factory.mktemp("generated")
    said = protoc.main(
        ["", f"-I{PROTO}", f"--python_out={out}", f"--grpc_python_out={out}", "urlfrontier.proto"]
    )
    assert said == 0
    sys.path.insert(0, str(out))
    try:
        yield tuple(map(importlib.import_module, ("urlfrontier_pb2", "urlfrontier_pb2_grpc")))
    finally:
        sys.path.remove(str(out))


@pytest.fixture
def service(generated, serve, tmp_path):
    """Starts a coordinator and returns its stub, and the messages."""
    messages, stubs = generated
    channels = []

    def start(*args, token=None):
        coordinator = serve(
            "--frontier", str(tmp_path / "frontier"), "--grpc", "127.0.0.1:0", *args, lines=2
        )
        address = coordinator.first[1].split()[-1]
        channels.append(grpc.insecure_channel(address))
        return stubs.URLFrontierStub(channels[-1])

    yield start, messages
    for channel in channels:
        channel.close()


def discovered(messages, *urls, crawl="", **fields):
    for url in urls:
        info = messages.URLInfo(url=url, crawlID=crawl, **fields)
        yield messages.URLItem(discovered=messages.DiscoveredURLItem(info=info), ID=url)


def known(messages, info, again=0):
    item = messages.KnownURLItem(info=info, refetchable_from_date=again)
    return iter([messages.URLItem(known=item)])


def test_pages_are_put_taken_and_reported(service):
    start, m = service
    stub = start(*FAST)
    lists = {"depth": m.StringList(values=["1", "2"])}
    urls = ["https://a.com/1", "https://a.com/2", "https://b.com/1", "nonsense"]
    acks = list(stub.PutURLs(discovered(m, *urls, metadata=lists)))
    assert [ack.ID for ack in acks] == urls
    Status = m.AckMessage.Status
    assert [ack.status for ack in acks] == [Status.OK] * 3 + [Status.SKIPPED]
    batch = m.DiscoveredBatch(ID="7", items=[m.URLInfo(url=url) for url in (urls[0], "x", "https://c.com/")])
    (ack,) = stub.PutDiscovered(iter([batch]))
    assert (ack.ID, list(ack.statuses)) == ("7", [Status.SKIPPED, Status.SKIPPED, Status.OK])

    taken = list(stub.GetURLs(m.GetParams(max_queues=10, max_urls_per_queue=10)))
    assert sorted(info.url for info in taken) == [*urls[:3], "https://c.com/"]
    assert list(taken[0].metadata["depth"].values) == ["1", "2"] and taken[0].crawlID == "DEFAULT"
    assert not list(stub.GetURLs(m.GetParams())), "each page is held"
    stats = stub.GetStats(m.QueueWithinCrawlParams())
    assert (stats.inProcess, stats.numberOfQueues) == (4, 3)
    for info in taken:
        later = int(time.time()) + 3600 if info.url.endswith("/2") else 0
        (ack,) = stub.PutURLs(known(m, info, later))
        assert ack.status == Status.OK and ack.ID == info.url
    stats = stub.GetStats(m.QueueWithinCrawlParams())
    assert (stats.inProcess, stats.size, stats.counts["completed"]) == (0, 1, 3)
    status = stub.GetURLStatus(m.URLStatusRequest(url="https://a.com/2", key="a.com"))
    assert status.known.refetchable_from_date > time.time()
    assert stub.CountURLs(m.CountUrlParams()).value == 4
    assert stub.CountURLs(m.CountUrlParams(filter="A.COM", ignoreCase=True)).value == 2


def test_a_page_that_never_was_taken_may_be_known(service):
    start, m = service
    stub = start(*FAST)
    list(stub.PutURLs(discovered(m, "https://a.com/1")))
    for url in ("https://a.com/1", "https://a.com/2"):
        (ack,) = stub.PutURLs(known(m, m.URLInfo(url=url)))
        assert ack.status == m.AckMessage.Status.OK
    assert not list(stub.GetURLs(m.GetParams()))
    assert stub.GetStats(m.QueueWithinCrawlParams()).counts["completed"] == 2
    (ack,) = stub.PutURLs(known(m, m.URLInfo(url="https://a.com/1"), again=1))
    (info,) = stub.GetURLs(m.GetParams(key="a.com", crawlID=""))
    assert info.url == "https://a.com/1", "a date in the past is now"


def test_queues_are_listed_blocked_and_deleted(service):
    start, m = service
    stub = start(*FAST)
    list(stub.PutURLs(discovered(m, "https://a.com/1", "https://b.com/1", crawl="news")))
    assert list(stub.ListCrawls(m.Local()).values) == ["news"]
    assert len(stub.ListNodes(m.Empty()).values) == 1
    assert list(stub.ListQueues(m.Pagination(crawlID="news")).values) == ["a.com", "b.com"]
    assert list(stub.ListQueues(m.Pagination(crawlID="news", start=1)).values) == ["b.com"]
    urls = stub.ListURLs(m.ListUrlParams(crawlID="news", key="b.com"))
    assert [item.known.info.url for item in urls] == ["https://b.com/1"]

    assert stub.GetActive(m.Local()).state
    stub.SetActive(m.Active(state=False))
    any_crawl = m.GetParams(anyCrawlID=m.AnyCrawlID())
    assert not list(stub.GetURLs(any_crawl)) and not stub.GetActive(m.Local()).state
    stub.SetActive(m.Active(state=True))
    later = int(time.time()) + 3600
    stub.BlockQueueUntil(m.BlockQueueParams(key="a.com", crawlID="news", time=later))
    assert [info.key for info in stub.GetURLs(any_crawl)] == ["b.com"]
    stub.BlockQueueUntil(m.BlockQueueParams(key="a.com", crawlID="news"))
    stub.SetDelay(m.QueueDelayParams(key="a.com", crawlID="news", delay_requestable=3600))
    assert [info.key for info in stub.GetURLs(any_crawl)] == ["a.com"], "nothing of it left before"
    assert stub.DeleteQueue(m.QueueWithinCrawlParams(key="a.com", crawlID="news")).value == 1
    assert stub.DeleteCrawl(m.DeleteCrawlMessage(value="news")).value == 1
    assert not stub.ListCrawls(m.Local()).values


def test_a_limit_ends_a_queue_and_a_default_delay_spaces_all_queues(service):
    start, m = service
    stub = start(*FAST)
    list(stub.PutURLs(discovered(m, "https://a.com/1", "https://a.com/2", "https://b.com/1", "https://b.com/2")))
    stub.SetCrawlLimit(m.CrawlLimitParams(key="a.com", limit=1))
    one_each = m.GetParams(max_urls_per_queue=1)
    taken = list(stub.GetURLs(one_each))
    assert [info.url for info in taken] == ["https://a.com/1", "https://b.com/1"]
    for info in taken:
        list(stub.PutURLs(known(m, info)))
    assert [info.url for info in stub.GetURLs(one_each)] == ["https://b.com/2"], "a.com has reached its limit"
    stub.SetCrawlLimit(m.CrawlLimitParams(key="a.com", limit=0))
    (info,) = stub.GetURLs(one_each)
    assert info.url == "https://a.com/2"
    stub.SetDelay(m.QueueDelayParams(delay_requestable=3600))
    list(stub.PutURLs(known(m, info)))
    list(stub.PutURLs(discovered(m, "https://a.com/3", "https://a.com/4")))
    assert [info.url for info in stub.GetURLs(one_each)] == ["https://a.com/3"]
    list(stub.PutURLs(discovered(m, "https://c.com/1")))
    assert [info.url for info in stub.GetURLs(one_each)] == ["https://c.com/1"], "the delay follows a take"


def test_pages_that_are_older_than_some_days_are_forgotten(service):
    start, m = service
    stub = start(*FAST)
    list(stub.PutURLs(discovered(m, "https://a.com/1", "https://a.com/2", "https://b.com/1")))
    status = stub.GetURLStatus(m.URLStatusRequest(url="https://a.com/1", key="a.com"))
    assert abs(status.creation_date - time.time()) < 60
    assert stub.PurgeURLs(m.PurgeUrlParams(days=1)).value == 0
    assert stub.PurgeURLs(m.PurgeUrlParams(crawlID="nowhere")).value == 0
    while int(time.time()) <= status.creation_date:
        time.sleep(0.05)
    assert stub.PurgeURLs(m.PurgeUrlParams(key="a.com")).value == 2
    assert stub.CountURLs(m.CountUrlParams()).value == 1
    (ack,) = stub.PutURLs(discovered(m, "https://a.com/1"))
    assert ack.status == m.AckMessage.Status.OK
    taken = stub.GetURLs(m.GetParams())
    assert sorted(info.url for info in taken) == ["https://a.com/1", "https://b.com/1"]


def test_the_level_of_the_log_is_set(service):
    start, m = service
    stub = start(*FAST)
    Level = m.LogLevelParams.Level
    stub.SetLogLevel(m.LogLevelParams(package="ROOT", level=Level.ERROR))
    stub.SetLogLevel(m.LogLevelParams(package="politely_frontier", level=Level.TRACE))


def test_what_is_wrong_is_an_error_of_one_line(service):
    start, m = service
    stub = start(*FAST)
    Code = grpc.StatusCode
    for call, message, code in [
        (stub.SetLogLevel, m.LogLevelParams(level=9), Code.INVALID_ARGUMENT),
        (stub.SetLogLevel, m.LogLevelParams(package="politely a"), Code.INVALID_ARGUMENT),
        (stub.SetCrawlLimit, m.CrawlLimitParams(key="a.com", limit=1), Code.NOT_FOUND),
        (stub.SetDelay, m.QueueDelayParams(key="a.com"), Code.NOT_FOUND),
        (stub.GetStats, m.QueueWithinCrawlParams(crawlID="a b"), Code.INVALID_ARGUMENT),
        (stub.BlockQueueUntil, m.BlockQueueParams(key="a.com", time=1 << 63), Code.INVALID_ARGUMENT),
    ]:
        with pytest.raises(grpc.RpcError) as raised:
            call(message)
        assert raised.value.code() == code, raised.value
        assert raised.value.details() and "\n" not in raised.value.details()


def test_a_call_needs_a_token_of_its_role(service, tmp_path):
    start, m = service
    tokens = tmp_path / "tokens"
    tokens.write_text(f"worker w {TOKEN}\n")
    tokens.chmod(0o600)
    stub = start(*FAST, "--token-file", str(tokens))
    with pytest.raises(grpc.RpcError) as raised:
        stub.ListCrawls(m.Local())
    assert raised.value.code() == grpc.StatusCode.UNAUTHENTICATED
    metadata = (("authorization", f"Bearer {TOKEN}"),)
    assert not stub.ListCrawls(m.Local(), metadata=metadata).values
    with pytest.raises(grpc.RpcError) as raised:
        stub.DeleteCrawl(m.DeleteCrawlMessage(value="news"), metadata=metadata)
    assert raised.value.code() == grpc.StatusCode.PERMISSION_DENIED
