use super::*;

const NAMES: [&str; 16] = [
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-minute",
    "x-ratelimit-reset-after",
    "anthropic-ratelimit-tokens-reset",
    "x-amzn-ratelimit-limit",
    "x-shopify-shop-api-call-limit",
    "ratelimit",
    "ratelimit-policy",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "ratelimit-observed",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-rate-limit-reset",
];

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<Vec<u8>>(),
        r#"("[a-c]";[rtqw]=[0-9]{1,16}(;[rtqw]=[0-9]{1,3})?(, )?){0,4}"#
            .prop_map(String::into_bytes),
        "[a-z0-9=,;.\"() :-]{0,40}".prop_map(String::into_bytes),
        "[0-9]{1,30}(\\.[0-9]{0,9})?".prop_map(String::into_bytes),
    ]
}

proptest! {
    #[test]
    fn any_fields_give_quotas_in_bounds(
        fields in proptest::collection::vec((0..NAMES.len(), value()), 0..8),
        now in any::<u64>(),
    ) {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                headers.append(HeaderName::from_static(NAMES[name]), value);
            }
        }
        let found = quotas(&headers, WallClock::from_unix_secs(now));
        prop_assert!(found.len() <= QUOTAS_MAX);
        for quota in found.iter() {
            prop_assert!(quota.limit.is_some() || quota.remaining.is_some());
            prop_assert!(quota.limit.is_none_or(|limit| (1..=COUNT_MAX).contains(&limit)));
            prop_assert!(quota.remaining.is_none_or(|remaining| remaining <= COUNT_MAX));
            prop_assert!(quota.reset.is_none_or(|reset| reset <= SPAN_MAX));
            prop_assert!(quota.window.is_none_or(|window| !window.is_zero() && window <= SPAN_MAX));
        }
    }

    #[test]
    fn blanks_and_quotes_change_nothing(
        left in 0_u64..1_000,
        reset in "[0-9]{1,4}|[0-9]{1,3}(s|ms|m)|PT[0-9]{1,2}S",
        blanks in "[ \t]{0,3}",
    ) {
        let left = left.to_string();
        let plain = [("x-ratelimit-remaining", left.as_str()), ("x-ratelimit-reset", &reset)];
        let padded = [
            ("x-ratelimit-remaining", &*format!("{blanks}\"{left}\"{blanks}")),
            ("x-ratelimit-reset", &*format!("{blanks}\"{}\"{blanks}", reset.to_lowercase())),
        ];
        prop_assert_eq!(named(&padded), named(&plain));
    }

    #[test]
    fn any_name_is_read_without_harm(
        name in "(x-|anthropic-|x-vendor-)?rate-?limit(-(limit|remaining|reset|after|used|tokens|minute|daily|interval|max|[0-9]{1,20}|[a-z]{1,5})){0,5}",
        value in "[0-9./-]{0,24}",
    ) {
        let mut headers = HeaderMap::new();
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
        headers.insert(name, HeaderValue::from_str(&value).expect("a value"));
        prop_assert!(quotas(&headers, NOW).len() <= 1);
    }
}
