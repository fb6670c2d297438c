//! A day of an account with a provider of language models, in virtual time: the provider refuses
//! nothing, the account's tokens are used up, and the coordinator's count equals the provider's own
//! log to the token.
//!
//! Virtual time compresses the day, and its windows stay those of the provider. With `WHOLE_RUN=1`
//! and `--nocapture` the account has twenty times the tokens, and the test prints its figures.

use std::collections::VecDeque;

use parking_lot::Mutex;
use politely::core::Rng;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::rules::{of_url, ruled};
use super::*;

const DAY: Duration = Duration::from_hours(24);
const MINUTE: Duration = Duration::from_mins(1);
const CLIENTS: u64 = 12;
/// The longest way of a request to the provider.
const WAY_MS: u64 = 100;

/// The provider's limits.
#[derive(Clone, Copy)]
struct Limits {
    per_day: u64,
    per_minute: u64,
    requests_per_minute: u64,
}

const SMALL: Limits = Limits {
    per_day: 14_400_000,
    per_minute: 16_000,
    requests_per_minute: 40,
};
const WHOLE: Limits = Limits {
    per_day: 288_000_000,
    per_minute: 320_000,
    requests_per_minute: 800,
};

/// The provider: a log of all requests, and windows over it. A request counts with its prompt and
/// the longest answer that it allows, until the length of its answer is known.
struct Provider {
    limits: Limits,
    log: Vec<(Instant, u64)>,
    /// The numbers of the requests of the last minute.
    minute: VecDeque<usize>,
    in_minute: u64,
    total: u64,
    refused: usize,
}

impl Provider {
    /// Receives a request. Returns its number, or `None` if it exceeds a limit.
    fn receive(&mut self, now: Instant, tokens: u64) -> Option<usize> {
        while let Some(&first) = self.minute.front()
            && now.duration_since(self.log[first].0) >= MINUTE
        {
            self.minute.pop_front();
            self.in_minute -= self.log[first].1;
        }
        let has_room = self.in_minute + tokens <= self.limits.per_minute
            && self.total + tokens <= self.limits.per_day
            && (self.minute.len() as u64) < self.limits.requests_per_minute;
        if !has_room {
            self.refused += 1;
            return None;
        }
        let number = self.log.len();
        self.log.push((now, tokens));
        self.minute.push_back(number);
        self.in_minute += tokens;
        self.total += tokens;
        Some(number)
    }

    /// Ends a request that used `tokens`.
    fn end(&mut self, number: usize, tokens: u64) {
        let before = std::mem::replace(&mut self.log[number].1, tokens);
        self.total = self.total - before + tokens;
        if self.minute.front().is_some_and(|first| *first <= number) {
            self.in_minute = self.in_minute - before + tokens;
        }
    }
}

/// How the answer to a request ends.
enum End {
    Whole,
    /// The client closes the stream, and knows what it received.
    Closed,
    /// The client closes the stream before it knows any usage. The provider bills the longest
    /// answer.
    Unknown,
    /// The client is killed and reports nothing.
    Killed,
}

fn below(rng: &mut Rng, end: u64) -> u64 {
    rng.next_u64() % end
}

/// Sends requests until the day is over or the account has no room for another.
async fn client(
    coordinator: Coordinator,
    provider: Arc<Mutex<Provider>>,
    number: u64,
    ends: Instant,
) {
    let worker = coordinator.worker(&format!("client-{number}"));
    let mut rng = Rng::new(number);
    loop {
        let (prompt, longest) = (100 + below(&mut rng, 500), 200 + below(&mut rng, 1_200));
        let estimate = prompt + longest;
        let item = Item {
            cost: serde_json::from_value(json!({ "requests": 1, "tokens": estimate })).unwrap(),
            ..of_url("https://llm.example/v1/messages", "POST")
        };
        let grant = match coordinator.one(&worker, item, MINUTE).await {
            Answer::Granted(grant) => grant,
            Answer::Wait { .. } if Instant::now() < ends => continue,
            Answer::Wait { .. } => return,
            other => panic!("{other:?}"),
        };
        sleep(Duration::from_millis(below(&mut rng, WAY_MS))).await;
        let received = provider.lock().receive(Instant::now(), estimate);
        let Some(request) = received else {
            coordinator.tell(&worker, &refusal(&grant, "1"));
            continue;
        };
        let answer = 1 + below(&mut rng, longest);
        let (end, tokens) = match below(&mut rng, 100) {
            0..75 => (End::Whole, prompt + answer),
            75..90 => (End::Closed, prompt + below(&mut rng, answer)),
            90..98 => (End::Unknown, estimate),
            _ => (End::Killed, estimate),
        };
        let streaming = Told {
            body_coming: true,
            ..told(&grant)
        };
        coordinator.tell(&worker, &streaming);
        // A few streams last longer than a lease.
        let length_s = match below(&mut rng, 50) {
            0 => 300,
            _ => 1 + below(&mut rng, 15),
        };
        let mut left = Duration::from_secs(length_s);
        while !left.is_zero() {
            let part = left.min(MINUTE);
            sleep(part).await;
            left -= part;
            if !left.is_zero() {
                coordinator.renew(&worker, std::slice::from_ref(&grant.permit));
            }
        }
        provider.lock().end(request, tokens);
        let used = match end {
            End::Killed => continue,
            End::Unknown => BTreeMap::new(),
            End::Whole | End::Closed => BTreeMap::from([("tokens".to_owned(), tokens)]),
        };
        let over = Told {
            used,
            ..told(&grant)
        };
        assert_eq!(coordinator.tell(&worker, &over).error, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_day_of_a_provider_is_used_up_without_a_refusal_and_settled_to_the_token() {
    let is_whole = std::env::var_os("WHOLE_RUN").is_some();
    let limits = if is_whole { WHOLE } else { SMALL };
    let Limits {
        per_day,
        per_minute,
        requests_per_minute,
    } = limits;
    let rules = format!(
        "[[rule]]\nmatch = [\"llm.example\"]\naccount = \"llm\"\nlimits = [\"{requests_per_minute}/min\", \
         \"{per_minute} tokens/min\", \"{per_day} tokens/day\"]\n"
    );
    let (coordinator, _dir) = ruled(Config::fixed(1_000.0, 100.0), &rules);
    let provider = Arc::new(Mutex::new(Provider {
        limits,
        log: Vec::new(),
        minute: VecDeque::new(),
        in_minute: 0,
        total: 0,
        refused: 0,
    }));
    let began = Instant::now();
    // The windows of the first requests end with the day, so the last ones leave a little before.
    let ends = began + DAY - 15 * MINUTE;
    let clients = if is_whole { 20 * CLIENTS } else { CLIENTS };
    let clients = (1..=clients)
        .map(|number| client(coordinator.clone(), Arc::clone(&provider), number, ends));
    let mut tasks: tokio::task::JoinSet<()> = clients.collect();
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let provider = provider.lock();
    let used = provider.total as f64 / per_day as f64;
    let budgets = coordinator.explain("custom/llm").unwrap().budgets;
    let of_day = budgets
        .iter()
        .max_by_key(|left| left.limit.quantity())
        .unwrap();
    println!(
        "{} requests in {:.1} h, {} refused, {} of {per_day} tokens used ({:.2} %), {} left by the \
         coordinator's count",
        provider.log.len(),
        began.elapsed().as_secs_f64() / 3_600.0,
        provider.refused,
        provider.total,
        100.0 * used,
        of_day.remaining
    );
    assert_eq!(provider.refused, 0);
    assert_eq!(of_day.remaining, per_day - provider.total);
    assert!(used >= 0.95, "{used}");
}
