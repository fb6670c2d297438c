//! One in ten of the engine's answers is lost.

use super::crew::{Crew, fixed, same};
use super::proxy::Proxy;
use crate::fleet::{open_hosts, verdict::Numbers};
use politely_testkit::redis::RedisServer;

const NUMBERS: Numbers = Numbers {
    rate: 3.0,
    burst: 1.0,
    in_flight: 2,
};

#[test]
fn no_slot_is_charged_twice_and_none_is_lost() {
    let redis = RedisServer::start("");
    let proxy = Proxy::start(redis.address);
    let mut crew = Crew::start(open_hosts(8, 20, 400.0));
    let args = fixed(NUMBERS, "--timeout 5s");
    proxy.lose(10);
    crew.hire(&same(&proxy.url(), 4), &args);
    crew.until_arrivals(crew.pages() * 9 / 10);
    proxy.lose(0);
    crew.finish();
    eprintln!("{} answers lost", proxy.lost());

    assert!(proxy.lost() > 50, "{} answers lost", proxy.lost());
    crew.demand_all_pages();
    crew.demand_pace(NUMBERS, 0.0);
    crew.demand_in_flight(NUMBERS.in_flight);
    crew.demand_books(&redis.url(), NUMBERS);
}
