//! Tests that `politely demo` shows what it is for.

use crate::run::{politely, run};

#[test]
fn a_client_without_limits_loses_pages_and_politely_loses_none() {
    let said = run(politely().args(["demo", "--pages", "12"]));
    assert_eq!(said.code, 0, "{}\n{}", said.out, said.err);
    let line = |begin: &str| {
        let found = said.out.lines().find_map(|line| line.strip_prefix(begin));
        found.unwrap_or_else(|| panic!("no {begin:?}: {}", said.out))
    };
    let lost = |line: &str| -> u32 {
        let number = line.split(" of 204 pages lost").next();
        number
            .and_then(|number| number.trim().parse().ok())
            .expect("a number")
    };
    assert!(lost(line("without limits:")) >= 9, "{}", said.out);
    assert_eq!(lost(line("with politely:")), 0, "{}", said.out);
    let head = line("host ");
    for column in ["limit/s", "found/s", "held back by"] {
        assert!(head.contains(column), "{head}");
    }
    let next = line("found/s: ");
    assert!(next.contains("Next: politely fetch --input"), "{next}");
    assert!(!said.out.contains('{'), "a line per page: {}", said.out);
    // Twelve pages are a burst and a few more, so the rate that was found is near the limit only.
    let row = line("slow-bucket");
    let numbers: Vec<f64> = (row.split_whitespace().filter(|word| word.contains('.')))
        .filter_map(|word| word.parse().ok())
        .collect();
    assert!((numbers[0] - 2.0).abs() < 1e-9, "{row}");
    assert!((1.0..=4.0).contains(&numbers[1]), "{row}");
    assert!(said.err.contains(" refused"), "{}", said.err);
}
