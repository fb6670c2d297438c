//! Tests of `declared.rs`.

use proptest::prelude::*;

use super::super::notation::understood_as;
use super::*;

fn read(text: &str) -> String {
    let limits = text.parse::<DeclaredLimits>();
    limits.map_or_else(|error| error.to_string(), |limits| limits.to_string())
}

#[test]
fn limits_are_read_as_people_write_them() {
    for (written, meant) in [
        ("5000/h", "5000/h"),
        ("10 per minute", "10/min"),
        ("10/m", "10/min"),
        ("200k requests / min", "200000/min"),
        ("1 request/2hours", "1/2h"),
        ("10/s; 1000/day@UTC", "10/s; 1000/day@UTC"),
        ("300/90s, 5/week", "300/90s; 5/7day"),
        ("9M/month@Europe/Berlin", "9000000/month@Europe/Berlin"),
        ("5MB/s", "5000000 bytes/s"),
        ("200k tokens/min", "200000 tokens/min"),
        ("1 GiB/day@UTC", "1073741824 bytes/day@UTC"),
        ("100 concurrent; 10/s", "10/s; 100 concurrent"),
        ("20 in flight", "20 concurrent"),
        ("10r/s", "10/s"),
        ("100 reqs/min; 5req/h", "100/min; 5/h"),
        ("5mb/s", "5000000 bytes/s"),
        ("200kb/s", "200000 bytes/s"),
        (
            "100 kbytes/s; 2 megabytes/h",
            "100000 bytes/s; 2000000 bytes/h",
        ),
        ("1e6/day", "1000000/day"),
        ("2e3 tokens/min", "2000 tokens/min"),
        ("2E3MB/day", "2000000000 bytes/day"),
    ] {
        assert_eq!(read(written), meant, "{written}");
    }
}

#[test]
fn a_wrong_text_is_one_line_that_names_it() {
    for (written, part) in [
        ("", "write it as"),
        ("ten/s", "begin with a whole number"),
        ("0/s", "from 1 to 2^53"),
        ("0 concurrent", "from 1 to 2^53"),
        ("-1/s", "begin with a whole number"),
        ("1.5/s", "unknown unit `.5`"),
        ("10ops/s", "unknown unit `ops`"),
        ("5mbit/s", "unknown unit `mbit`"),
        ("5 mibytes/s", "unknown unit `mibytes`"),
        ("5 mbps/s", "unknown unit `mbps`"),
        ("1e99/s", "from 1 to 2^53"),
        ("1e/s", "unknown unit `e`"),
        ("/s", "begin with a whole number"),
        ("99999999999999999999/s", "from 1 to 2^53"),
        ("9007199254740993/s", "from 1 to 2^53"),
        ("9007199254740GB/s", "from 1 to 2^53"),
        ("5/0s", "at least 1s"),
        ("5/100000days", "at most 366 days"),
        ("5/876000h", "at most 366 days"),
        ("5/month", "/month@Europe/Berlin"),
        ("5/2day@UTC", "/day@UTC"),
        ("5/s@UTC", "/day@UTC"),
        ("5/day@Atlantis", "unknown time zone `Atlantis`"),
        ("5/fortnight", "unknown window `fortnight`"),
        ("200 Tokens/min", "unknown unit `Tokens`"),
        ("5 tokens concurrent", "write it as"),
        ("5", "write it as"),
        ("5/s; 6/s", "the same window as `5/s`"),
        ("5/s\n6", "unknown window"),
    ] {
        let error = read(written);
        assert!(error.contains(part), "{written}: {error}");
        assert_eq!(error.lines().count(), 1);
    }
    let nine: Vec<String> = (1..=9).map(|secs| format!("1/{secs}s")).collect();
    assert!(read(&nine.join(";")).contains("more than 8"));
    assert!(read(&"9".repeat(10_000)).len() < 200);
}

proptest! {
    #[test]
    fn no_text_panics_and_each_limit_is_read_again(
        text in "[0-9kM]{0,4}[ a-z]{0,9}[/ ]?[0-9]{0,3}[a-z@;,/]{0,9}",
    ) {
        if let Ok(limits) = text.parse::<DeclaredLimits>() {
            prop_assert_eq!(limits.to_string().parse::<DeclaredLimits>(), Ok(limits));
        }
    }
}

#[test]
fn an_unusual_text_is_told_as_it_was_understood() {
    let told = understood_as("10r/s").expect("it is unusual");
    assert_eq!(told, "`10r/s` is read as 10/s, in the unit requests");
    for text in ["100 reqs/min", "5mb/s", "200kb/s", "1e6/day"] {
        assert!(understood_as(text).is_some(), "{text}");
    }
    for text in [
        "10/s",
        "200k requests/min",
        "5MB/s",
        "5 bytes/s",
        "9 tokens/s",
        "2 concurrent",
        "?",
    ] {
        assert_eq!(understood_as(text), None);
    }
}
