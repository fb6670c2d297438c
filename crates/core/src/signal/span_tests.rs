//! Tests of `span.rs`.

use proptest::prelude::*;

use super::*;

/// 2026-11-20T10:44:37Z
const NOW: WallClock = WallClock::from_unix_secs(1_795_171_477);

fn span(text: &str) -> Option<Duration> {
    from_now(text, || NOW)
}

#[expect(clippy::unnecessary_wraps, reason = "compared with options")]
fn secs(secs: u64) -> Option<Duration> {
    Some(Duration::from_secs(secs))
}

#[test]
fn row_seconds_from_now() {
    for (text, expected) in [
        ("30", 30),
        ("0", 0),
        (" 30\t", 30),
        ("\"30\"", 30),
        ("'7'", 7),
    ] {
        assert_eq!(span(text), secs(expected), "{text}");
    }
    assert_eq!(span("338.5"), Some(Duration::from_millis(338_500)));
    assert_eq!(span("1000000000"), secs(1_000_000_000));
}

#[test]
fn row_times_since_1970_in_four_units() {
    assert_eq!(span("1795171537"), secs(60));
    assert_eq!(span("1795171537.25"), Some(Duration::from_millis(60_250)));
    assert_eq!(span("1795171537250"), Some(Duration::from_millis(60_250)));
    assert_eq!(
        span("1795171537250000"),
        Some(Duration::from_millis(60_250))
    );
    assert_eq!(
        span("1795171537250000000"),
        Some(Duration::from_millis(60_250))
    );
    assert_eq!(span("1795171400"), secs(0), "it has passed");
    assert_eq!(span("1795171400000"), secs(0), "it has passed");
    assert_eq!(span(&"9".repeat(65)), Some(Duration::MAX));
}

#[test]
fn row_spans_with_units() {
    for (text, millis) in [
        ("4s", 4_000),
        ("0m4s", 4_000),
        ("6m0s", 360_000),
        ("1h2m3s", 3_723_000),
        ("1H2M3S", 3_723_000),
        ("12ms", 12),
        ("1.5s", 1_500),
        ("1m30.951s", 90_951),
        ("500µs", 1),
        ("4 s", 4_000),
        ("30 seconds", 30_000),
        ("1 minute", 60_000),
        ("2 minutes, 30 seconds", 150_000),
        ("1d", 86_400_000),
    ] {
        let found = span(text).expect(text);
        assert_eq!(found.as_micros().div_ceil(1_000), millis, "{text}");
    }
}

#[test]
fn row_iso_durations() {
    for (text, expected) in [
        ("PT4S", 4),
        ("pt4s", 4),
        ("PT1M", 60),
        ("P1M", 30 * 86_400),
        ("P1DT2H", 93_600),
        ("P1W", 7 * 86_400),
        ("PT0S", 0),
    ] {
        assert_eq!(span(text), secs(expected), "{text}");
    }
    assert_eq!(span("PT1,5S"), Some(Duration::from_millis(1_500)));
}

#[test]
fn row_iso_date_times() {
    for text in [
        "2026-11-20T10:45:37Z",
        "2026-11-20 10:45:37",
        "2026-11-20t10:45:37z",
        "2026-11-20T11:45:37+01:00",
        "2026-11-20T11:45:37+01",
        "2026-11-20T05:15:37-0530",
        "2026-11-20T10:45:36.001Z",
        "2026-11-20T10:45:37 UTC",
        "\"2026-11-20T10:45:37Z\"",
    ] {
        assert_eq!(span(text), secs(60), "{text}");
    }
    assert_eq!(span("2026-11-20T10:46Z"), secs(83));
}

#[test]
fn row_dates_with_any_weekday_and_zone() {
    for text in [
        "Fri, 20 Nov 2026 10:45:37 GMT",
        "Mon, 20 Nov 2026 10:45:37 GMT",
        "fri, 20 nov 2026 10:45:37 gmt",
        "20 Nov 2026 10:45:37 GMT",
        "Fri, 20 Nov 2026 10:45:37 UTC",
        "Fri, 20 Nov 2026 10:45:37 UT",
        "Fri, 20 Nov 2026 10:45:37 Z",
        "Fri, 20 Nov 2026 10:45:37",
        "Fri, 20 Nov 2026 10:45:37 +0000",
        "Fri, 20 Nov 2026 12:45:37 +0200",
        "Fri, 20 Nov 2026 12:45:37 GMT+02:00",
        "Fri, 20 Nov 2026 05:45:37 EST",
        "Fri, 20-Nov-2026 10:45:37 GMT",
        "Friday, 20-Nov-26 10:45:37 GMT",
        "Fri Nov 20 10:45:37 2026",
        "Friday, 20 November 2026 10:45:37 GMT",
    ] {
        assert_eq!(span(text), secs(60), "{text}");
    }
}

/// Regression: the fields were multiplied before they were compared with their bounds.
#[test]
fn trap_huge_fields_of_a_date_say_nothing() {
    const HUGE: &str = "99999999999999999999";
    for text in [
        format!("20 Nov 2026 {HUGE}:44:41 GMT"),
        format!("20 Nov 2026 10:{HUGE}:41 GMT"),
        format!("20 Nov 2026 10:44:{HUGE} GMT"),
        format!("20 Nov 2026 10:44:41 GMT+{HUGE}"),
        format!("20 Nov 2026 10:44:41 +{HUGE}:00"),
        format!("20 Nov 2026 10:44:41 +00:{HUGE}"),
        format!("2026-11-20T{HUGE}:44:41Z"),
        format!("2026-11-20T10:44:41+00:{HUGE}"),
    ] {
        assert_eq!(span(&text), None, "{text}");
    }
    let most = Some(Duration::MAX);
    assert_eq!(span(&format!("{HUGE}{HUGE}")), most);
}

#[test]
fn other_texts_say_nothing() {
    for text in [
        "",
        " ",
        "\"",
        "soon",
        "-1",
        "+5",
        "-4s",
        "1e3",
        "0x10",
        ".5",
        "5.",
        ".",
        "1 2",
        "NaN",
        "inf",
        "١٢",
        "4x",
        "s",
        "4s4",
        "P",
        "PT",
        "P4",
        "P1H",
        "PT1D",
        "PTT4S",
        "4:30",
        "2026-11-20",
        "2026-13-20T10:45:37Z",
        "2026-02-29T10:45:37Z",
        "2026-11-20T10:45:37X",
        "2026-11-20T24:45:37Z",
        "2026-11-20T10:45:37+24:00",
        "1969-12-31T23:59:59Z",
        "1970-01-01T00:00:00+01:00",
        "２026-11-20T10:45:37Z",
        "2026-11-20T10:45:37+ä:ö",
        "Fri, 31 Feb 2026 10:45:37 GMT",
        "Fri, 20 Nov 2026 25:45:37 GMT",
        "Fri, 20 Nov 2026 10:45:37 XYZ",
        "Mon, 01 Jan 1900 00:00:00 GMT",
        "20 Nov 2026",
        "Fri, 20 Nov 2026 10:45:37 GMT GMT",
        "Nov Nov 20 10:45:37 2026",
    ] {
        assert_eq!(span(text), None, "{text}");
    }
}

proptest! {
    #[test]
    fn the_calendar_is_httpdates(secs in 0_u64..253_402_300_800) {
        let date = httpdate::HttpDate::from(std::time::UNIX_EPOCH + Duration::from_secs(secs)).to_string();
        prop_assert_eq!(super::date(&date), Some(WallClock::from_unix_secs(secs)), "{}", &date);
        let month = 1 + "JanFebMarAprMayJunJulAugSepOctNovDec".find(&date[8..11]).expect("a month") / 3;
        let text = format!("{}-{month:02}-{}T{}Z", &date[12..16], &date[5..7], &date[17..25]);
        prop_assert_eq!(iso_date_time(&text), Some(WallClock::from_unix_secs(secs)), "{}", text);
    }

    #[test]
    fn any_text_is_read_without_harm(
        text in "\\PC{0,60}|[0-9:.+TZPpHMSDWhmsd, -]{0,60}|[A-Za-z]{3,9},? ?[0-9]{1,2}[ -][A-Za-z]{3}[ -][0-9]{2,4} [0-9:]{5,8} [A-Z+0-9]{1,6}",
        now in any::<u64>(),
    ) {
        let _ = from_now(&text, || WallClock::from_unix_secs(now));
    }

    #[test]
    fn case_and_blanks_do_not_matter(
        text in "[0-9]{1,4}(ms|s|m|h|d)|P(T[0-9]{1,3}S|[0-9]D)|[0-9]{1,13}|(Fri, )?20 Nov 2026 [0-2][0-9]:45:37 (GMT|UTC)?",
        blanks in "[ \t]{0,4}",
    ) {
        let plain = span(&text);
        prop_assert_eq!(span(&text.to_ascii_uppercase()), plain);
        prop_assert_eq!(span(&text.to_ascii_lowercase()), plain);
        prop_assert_eq!(span(&format!("{blanks}\"{text}\"{blanks}")), plain);
    }
}
