//! The words of `URLFrontier`'s protocol, over a frontier in a folder and over one in Redis.

use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::{StreamExt, stream};
use politely::core::config::Config;
use politely_server::Settings;
use reqwest::Body;
use tokio::sync::oneshot;

use super::grpc::{
    Ack, Batch, Count, Discovered, Get, Info, Item, Kind, Known, List, Name, Order, Page, Purge,
    Queue, Stats, begin, call, client, frame, read,
};
use super::place::{Place, over_both};
use super::{fast, open};
use crate::client::Served;

const OK: i32 = 0;
const SKIPPED: i32 = 1;

#[expect(clippy::disallowed_methods, reason = "dates of pages are real")]
fn now() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    since_1970.unwrap().as_secs()
}

fn info(url: &str) -> Info {
    Info {
        url: url.to_owned(),
        ..Info::default()
    }
}

fn discovered(url: &str) -> Item {
    let info = Some(info(url));
    Item {
        kind: Some(Kind::Discovered(Discovered { info })),
        ..Item::default()
    }
}

fn known(url: &str, again: u64) -> Item {
    let info = Some(info(url));
    Item {
        kind: Some(Kind::Known(Known { info, again })),
        ..Item::default()
    }
}

async fn put(served: &Served, items: &[Item]) -> Vec<i32> {
    let acks = call::<Ack>(served, "PutURLs", items).await.unwrap();
    acks.into_iter().map(|ack| ack.status).collect()
}

async fn get(served: &Served, wish: Get) -> Vec<String> {
    let pages = call::<Info>(served, "GetURLs", &[wish]).await.unwrap();
    pages.into_iter().map(|page| page.url).collect()
}

/// Gets pages as soon as some may leave. Keys that are shared wait for two seconds after the start.
async fn get_some(served: &Served, wish: Get) -> Vec<String> {
    loop {
        let pages = get(served, wish.clone()).await;
        if !pages.is_empty() {
            return pages;
        }
    }
}

/// The wish for at most `pages` pages of each queue, for `hold` seconds.
fn of_all(pages: u32, hold: u32) -> Get {
    Get {
        pages,
        hold,
        ..Get::default()
    }
}

async fn stats(served: &Served, key: &str) -> Stats {
    let queue = Queue {
        key: key.to_owned(),
        ..Queue::default()
    };
    let mut stats = call(served, "GetStats", &[queue]).await.unwrap();
    stats.remove(0)
}

async fn list(served: &Served, list: List) -> Vec<Known> {
    let items = call::<Item>(served, "ListURLs", &[list]).await.unwrap();
    let known = |item: Item| match item.kind {
        Some(Kind::Known(known)) => known,
        other => panic!("{other:?}"),
    };
    items.into_iter().map(known).collect()
}

over_both!(a_page_that_is_lost_does_not_stop_its_queue);
async fn a_page_that_is_lost_does_not_stop_its_queue(place: Place) {
    let served = open(&place, fast(), None).await;
    let urls = ["https://a.com/1", "https://a.com/2", "https://a.com/3"];
    assert_eq!(put(&served, &urls.map(discovered)).await, [OK; 3]);
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let pages = get(&served, of_all(1, 300)).await;
        assert!(pages.len() <= 1, "a queue comes once in a call: {pages:?}");
        seen.extend(pages);
    }
    assert_eq!(seen, urls);
    let all = stats(&served, "a.com").await;
    assert_eq!((all.size, all.in_process), (3, 3));
    assert_eq!(put(&served, &[known(urls[1], 0)]).await, [OK]);
    let all = stats(&served, "").await;
    assert_eq!((all.size, all.in_process), (2, 2));
    served.end().await;
}

over_both!(pages_are_in_process_until_their_hold_ends);
async fn pages_are_in_process_until_their_hold_ends(place: Place) {
    let served = open(&place, fast(), None).await;
    put(
        &served,
        &[discovered("https://a.com/1"), discovered("https://b.com/1")],
    )
    .await;
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(get(&served, of_all(1, 1)).await);
    }
    while stats(&served, "a.com").await.in_process > 0 {}
    assert_eq!(stats(&served, "a.com").await.size, 1);
    while stats(&served, "").await.in_process > 0 {}
    assert_eq!(stats(&served, "").await.size, 2);
    served.end().await;
}

over_both!(pages_that_are_due_leave_in_the_order_of_their_dates);
async fn pages_that_are_due_leave_in_the_order_of_their_dates(place: Place) {
    let served = open(&place, fast(), None).await;
    let now = now();
    let page = |(number, ago): (usize, u64)| known(&format!("https://a.com/{number}"), now - ago);
    let pages: Vec<_> = [10, 500, 20, 400, 30]
        .into_iter()
        .enumerate()
        .map(page)
        .collect();
    put(&served, &pages[..3]).await;
    put(
        &served,
        &[
            discovered("https://a.com/new"),
            known("https://a.com/late", now + 9_000),
        ],
    )
    .await;
    let mut seen = get_some(&served, of_all(1, 300)).await;
    put(&served, &pages[3..]).await;
    while seen.len() < 6 {
        seen.extend(get(&served, of_all(9, 300)).await);
    }
    let expected = ["1", "3", "4", "2", "0", "new"].map(|name| format!("https://a.com/{name}"));
    assert_eq!(seen, expected);
    assert_eq!(
        get(&served, of_all(9, 300)).await,
        [""; 0],
        "the last one is not due"
    );
    served.end().await;
}

over_both!(a_repeated_discovery_is_skipped_and_each_page_is_known);
async fn a_repeated_discovery_is_skipped_and_each_page_is_known(place: Place) {
    let served = open(&place, fast(), None).await;
    let (url, later) = ("https://a.com/1", now() + 3_600);
    let twice = [
        discovered(url),
        discovered(url),
        known("https://a.com/2", later),
    ];
    assert_eq!(put(&served, &twice).await, [OK, SKIPPED, OK]);
    assert_eq!(
        put(&served, &[known(url, 0), discovered(url)]).await,
        [OK, SKIPPED]
    );
    assert_eq!(put(&served, &[discovered("https://a.com/3")]).await, [OK]);
    let mut pages = list(&served, List::default()).await;
    pages.sort_by_key(|page| page.info.as_ref().unwrap().url.clone());
    let [finished, dated, waiting] = &pages[..] else {
        panic!("{pages:?}");
    };
    assert_eq!((finished.again, dated.again), (0, later));
    assert!(waiting.again.abs_diff(now()) < 60, "{waiting:?}");
    let one = Page {
        url: "https://a.com/3".to_owned(),
        key: String::new(),
    };
    let page = call::<Item>(&served, "GetURLStatus", &[one]).await.unwrap();
    assert!(matches!(page[0].kind, Some(Kind::Known(_))), "{page:?}");
    served.end().await;
}

over_both!(what_does_not_exist_has_no_pages);
async fn what_does_not_exist_has_no_pages(place: Place) {
    let served = open(&place, fast(), None).await;
    put(&served, &[discovered("https://a.com/1")]).await;
    let (crawl, key) = ("nowhere".to_owned(), "b.com".to_owned());
    for queue in [
        Queue {
            crawl: crawl.clone(),
            ..Queue::default()
        },
        Queue {
            key: key.clone(),
            ..Queue::default()
        },
    ] {
        let stats = call::<Stats>(&served, "GetStats", std::slice::from_ref(&queue)).await;
        assert_eq!(stats, Ok(vec![Stats::default()]));
        // The messages of both calls begin with the queue and its crawl.
        let count = call::<Count>(&served, "CountURLs", std::slice::from_ref(&queue)).await;
        assert_eq!(count, Ok(vec![Count::default()]));
        let pages = List {
            crawl: queue.crawl,
            key: queue.key,
            ..List::default()
        };
        assert_eq!(list(&served, pages).await, []);
    }
    let deleted = call::<Count>(
        &served,
        "DeleteCrawl",
        &[Name {
            name: crawl.clone(),
        }],
    )
    .await;
    assert_eq!(deleted, Ok(vec![Count::default()]));
    let queue = Queue {
        key: key.clone(),
        ..Queue::default()
    };
    let deleted = call::<Count>(&served, "DeleteQueue", &[queue]).await;
    assert_eq!(deleted, Ok(vec![Count::default()]));
    let nothing = Get {
        key,
        crawl: Some(String::new()),
        ..Get::default()
    };
    assert_eq!(get(&served, nothing).await, [""; 0]);
    let limit = Order {
        key: "b.com".to_owned(),
        number: 1,
        ..Order::default()
    };
    let refused = call::<Name>(&served, "SetDelay", &[limit]).await;
    assert_eq!(refused, Err("5".to_owned()), "an order needs its queue");
    served.end().await;
}

over_both!(no_crawl_means_any_crawl_and_a_queue_needs_its_crawl);
async fn no_crawl_means_any_crawl_and_a_queue_needs_its_crawl(place: Place) {
    let served = open(&place, fast(), None).await;
    let mut of_news = info("https://a.com/1");
    "news".clone_into(&mut of_news.crawl);
    let batch = Batch {
        id: "1".to_owned(),
        items: vec![of_news],
    };
    call::<Name>(&served, "PutDiscovered", &[batch])
        .await
        .unwrap();
    let queue = Get {
        key: "a.com".to_owned(),
        ..Get::default()
    };
    assert_eq!(get(&served, queue).await, [""; 0]);
    assert_eq!(get_some(&served, of_all(1, 300)).await, ["https://a.com/1"]);
    served.end().await;
}

over_both!(a_delay_counts_from_the_last_time_that_pages_left);
async fn a_delay_counts_from_the_last_time_that_pages_left(place: Place) {
    let served = open(&place, fast(), None).await;
    put(
        &served,
        &[discovered("https://A.com/1"), discovered("https://a.com/2")],
    )
    .await;
    let delay = async |number| {
        // A queue's name is read as a key.
        let order = Order {
            key: "A.com".to_owned(),
            number,
            ..Order::default()
        };
        call::<Name>(&served, "SetDelay", &[order]).await.unwrap();
    };
    delay(3_600).await;
    assert_eq!(get_some(&served, of_all(1, 300)).await, ["https://a.com/1"]);
    assert_eq!(get(&served, of_all(1, 300)).await, [""; 0]);
    delay(0).await;
    let seen = get_some(&served, of_all(1, 300)).await;
    assert_eq!(seen, ["https://a.com/2"]);
    served.end().await;
}

over_both!(a_limit_bounds_the_finished_pages_of_a_queue);
async fn a_limit_bounds_the_finished_pages_of_a_queue(place: Place) {
    let served = open(&place, fast(), None).await;
    put(
        &served,
        &[discovered("https://a.com/1"), known("https://a.com/2", 0)],
    )
    .await;
    let limit = async |number| {
        let order = Order {
            key: "a.com".to_owned(),
            number,
            ..Order::default()
        };
        call::<Name>(&served, "SetCrawlLimit", &[order])
            .await
            .unwrap();
    };
    limit(1).await;
    assert_eq!(get(&served, of_all(1, 300)).await, [""; 0]);
    limit(0).await;
    assert_eq!(get_some(&served, of_all(1, 300)).await, ["https://a.com/1"]);
    served.end().await;
}

over_both!(pages_that_are_older_than_some_days_are_forgotten);
async fn pages_that_are_older_than_some_days_are_forgotten(place: Place) {
    let served = open(&place, fast(), None).await;
    let urls = ["https://a.com/1", "https://a.com/2", "https://b.com/1"];
    put(&served, &urls.map(discovered)).await;
    let mut held = get_some(&served, of_all(1, 300)).await;
    let purge = async |days| {
        let purge = Purge {
            days,
            ..Purge::default()
        };
        call::<Count>(&served, "PurgeURLs", &[purge]).await.unwrap()[0].value
    };
    assert_eq!(purge(365).await, 0);
    // Pages are older than no day when a second has passed.
    while purge(0).await == 0 {}
    let pages = list(&served, List::default()).await;
    let left = pages.into_iter().map(|page| page.info.unwrap().url);
    held.sort_unstable();
    assert_eq!(left.collect::<Vec<_>>(), held, "those that are held");
    let forgotten = urls
        .into_iter()
        .find(|url| !held.iter().any(|of| of == url));
    let again = put(&served, &[discovered(forgotten.unwrap())]).await;
    assert_eq!(again, [OK], "it is new");
    served.end().await;
}

over_both!(a_list_ends_at_the_last_page);
async fn a_list_ends_at_the_last_page(place: Place) {
    const PAGES: usize = 11_000;
    let served = open(&place, fast(), None).await;
    let url = |number: usize| format!("https://h{}.com/{number}", number % 7);
    let items: Vec<_> = (0..PAGES).map(|number| info(&url(number))).collect();
    let batch = |items: &[Info]| Batch {
        id: String::new(),
        items: items.to_vec(),
    };
    let batches: Vec<_> = items.chunks(1_000).map(batch).collect();
    call::<Name>(&served, "PutDiscovered", &batches)
        .await
        .unwrap();
    let all = List {
        size: i32::MAX as u32,
        ..List::default()
    };
    assert_eq!(list(&served, all.clone()).await.len(), PAGES);
    let last = List {
        start: 10_990,
        ..all
    };
    assert_eq!(list(&served, last).await.len(), 10);
    assert_eq!(list(&served, List::default()).await.len(), 100);
    served.end().await;
}

over_both!(a_queue_gives_the_pages_that_its_rate_allows_whatever_its_cap);
async fn a_queue_gives_the_pages_that_its_rate_allows_whatever_its_cap(place: Place) {
    let mut config = Config::fixed(5.0, 1.0);
    config.limits.in_flight = 2;
    let settings = Settings {
        config,
        ..Settings::default()
    };
    let served = open(&place, settings, None).await;
    let items: Vec<_> = (0..20)
        .map(|number| discovered(&format!("https://a.com/{number}")))
        .collect();
    put(&served, &items).await;
    // Five a second, for two seconds ahead.
    let seen = get_some(&served, of_all(10, 300)).await;
    assert_eq!(seen.len(), 10, "{seen:?}");
    served.end().await;
}

/// Sends `frames` one by one, each as one frame of HTTP/2. The receiver is told when so many were
/// taken by the connection that the server does not read them all.
fn small_frames(
    frames: impl Iterator<Item = Vec<u8>> + Send + 'static,
) -> (Body, oneshot::Receiver<()>) {
    const UNREAD: usize = 16_000;
    let (full, is_full) = oneshot::channel();
    let mut full = Some(full);
    let frames = stream::iter(frames)
        .enumerate()
        .map(move |(number, frame)| {
            if number == UNREAD
                && let Some(full) = full.take()
            {
                let _ = full.send(());
            }
            Ok::<_, std::io::Error>(frame)
        });
    (Body::wrap_stream(frames), is_full)
}

over_both!(a_stream_of_small_messages_is_not_cut_off_while_the_server_waits);
async fn a_stream_of_small_messages_is_not_cut_off_while_the_server_waits(place: Place) {
    const MESSAGES: usize = 40_000;
    let served = open(&place, fast(), None).await;
    let url = |number: usize| format!("http://h{}.com/{number}", number % 9);
    let frames = (0..MESSAGES).map(move |number| frame(&discovered(&url(number))));
    let (body, is_full) = small_frames(frames);
    let answer = begin(&served, "PutURLs", body).await.unwrap();
    // The answers are not read, so the server waits.
    is_full.await.unwrap();
    let acks = read::<Ack>(answer).await.unwrap();
    assert_eq!(acks.len(), MESSAGES);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_of_a_line_a_frame_is_not_cut_off_while_the_server_waits() {
    const LINES: usize = 40_000;
    let place = Place::folder();
    let served = open(&place, fast(), None).await;
    let line = |number: usize| format!("{{\"url\":\"http://h{}.com/{number}\"}}\n", number % 9);
    let (body, is_full) = small_frames((0..LINES).map(move |number| line(number).into_bytes()));
    let request = client().post(served.url("/api/v1/frontier/c/put"));
    let request = request.header("content-type", "application/x-ndjson");
    let answer = request.body(body).send().await.unwrap();
    is_full.await.unwrap();
    let answers = answer.text().await.unwrap();
    assert_eq!(answers.matches("\"new\"").count(), LINES);
    served.end().await;
}
