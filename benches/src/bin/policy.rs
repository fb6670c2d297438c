//! Times the reading and the matching of 100,000 rules:
//! `cargo run --profile dist -p politely-benches --bin policy`.

#![expect(clippy::disallowed_methods, reason = "benchmarks look at the clock")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

use politely::Key;
use politely::policy::RuleBook;
use url::Url;

const RULES: usize = 100_000;
const LOOKUPS: usize = 1_000_000;

fn main() {
    let mut text = String::new();
    for i in 0..RULES {
        let pattern = match i % 4 {
            0 => format!("h{i}.example"),
            1 => format!("*.s{i}.example"),
            2 => format!("p{}.example/{{x}}/v{i}/*", i % 1_000),
            _ => format!("custom/k{i}"),
        };
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            text,
            "[[rule]]\nmatch = [\"{pattern}\"]\nlimits = [\"{}/h\", \"10/s\"]",
            i + 1
        );
    }
    let began = Instant::now();
    let book: RuleBook = text.parse().expect("rules");
    println!(
        "read {RULES} rules, {} bytes: {:?}",
        text.len(),
        began.elapsed()
    );
    let urls: Vec<(Url, Key)> = (0..1_000)
        .map(|i| {
            let at = i * 97;
            let text = match i % 4 {
                0 => format!("https://h{}.example/a/b", at - at % 4),
                1 => format!("https://a.b.s{}.example/", at - at % 4 + 1),
                2 => format!(
                    "https://p{}.example/7/v{}/x",
                    (at - at % 4 + 2) % 1_000,
                    at - at % 4 + 2
                ),
                _ => format!("https://none{at}.example/"),
            };
            let url: Url = text.parse().expect("a URL");
            let key = Key::of_url(&url).expect("a host");
            (url, key)
        })
        .collect();
    let found = urls
        .iter()
        .filter(|(url, key)| book.of_url(url, key).is_some());
    println!("{} of 1,000 URLs have a rule", found.count());
    let began = Instant::now();
    for i in 0..LOOKUPS {
        let (url, key) = &urls[i % urls.len()];
        black_box(book.of_url(black_box(url), key));
    }
    let each = began.elapsed() / LOOKUPS as u32;
    println!("match: {} ns", each.as_nanos());
}
