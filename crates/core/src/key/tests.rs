//! One test for each trap of host names, then the properties.

use proptest::prelude::*;

use super::*;

fn host(text: &str) -> String {
    Key::host(text)
        .unwrap_or_else(|error| panic!("{text}: {error}"))
        .to_string()
}

fn site(text: &str) -> String {
    Key::site(text)
        .unwrap_or_else(|error| panic!("{text}: {error}"))
        .to_string()
}

fn url(text: &str) -> Url {
    Url::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn trap_case_is_one_host() {
    assert_eq!(host("HTTPS://ExAmPlE.CoM/A"), "example.com");
    assert_eq!(host(" EXAMPLE.com\n"), "example.com");
}

#[test]
fn trap_unicode_and_punycode_are_one_host() {
    assert_eq!(host("http://bücher.example/"), "xn--bcher-kva.example");
    assert_eq!(host("BÜCHER.example"), "xn--bcher-kva.example");
    assert_eq!(host("xn--bcher-kva.EXAMPLE"), "xn--bcher-kva.example");
    assert_eq!(host("example。com"), "example.com");
}

#[test]
fn trap_trailing_dot() {
    assert_eq!(host("http://example.com./"), "example.com");
    assert_eq!(host("example.com.:8080"), "example.com:8080");
    assert_eq!(Key::host("."), Err(KeyError::Empty));
}

#[test]
fn trap_empty_labels_are_refused() {
    for text in ["example.com..", "a..b", ".a", "http://a..b/"] {
        assert_eq!(Key::host(text), Err(KeyError::EmptyLabel), "{text}");
    }
}

#[test]
fn trap_web_ports_are_no_second_host_and_others_are() {
    for text in [
        "http://h:80",
        "https://h:443",
        "https://h:80",
        "http://h:443",
        "h:80",
        "h:443",
    ] {
        assert_eq!(host(text), "h", "{text}");
    }
    assert_eq!(host("http://h:8080"), "h:8080");
    assert_eq!(host("h:08080"), "h:8080");
    assert_eq!(host("h:"), "h");
    for text in [
        "h:x",
        "h:-1",
        "h:+80",
        "h:65536",
        "h:99999999999999999999",
        "[::1]x",
        "a:1:2",
    ] {
        assert_eq!(Key::host(text), Err(KeyError::Port), "{text}");
    }
}

#[test]
fn trap_ipv6_brackets_and_compression() {
    for text in [
        "http://[2001:DB8:0:0::1]/",
        "[2001:db8::0001]",
        "2001:db8:0:0:0:0:0:1",
    ] {
        assert_eq!(host(text), "[2001:db8::1]", "{text}");
    }
    assert_eq!(host("[::1]:8080"), "[::1]:8080");
    assert_eq!(host("[::ffff:192.0.2.1]:8080"), "192.0.2.1:8080");
    assert!(matches!(
        Key::host("fe80::1%eth0"),
        Err(KeyError::Port | KeyError::Host(_))
    ));
    assert!(matches!(
        Key::host("[::1"),
        Err(KeyError::Port | KeyError::Host(_))
    ));
}

#[test]
fn trap_ipv4_spellings() {
    for text in [
        "http://0x7f.1/",
        "127.0.0.1.",
        "2130706433",
        "http://127.1/",
    ] {
        assert_eq!(host(text), "127.0.0.1", "{text}");
    }
    assert!(matches!(Key::host("1.2.3.256"), Err(KeyError::Host(_))));
}

#[test]
fn trap_user_info_is_no_part_of_a_host() {
    assert_eq!(host("http://example.org:80@example.com/"), "example.com");
    assert!(Key::host("user@example.com").is_err());
    assert!(Key::host("user:pw@example.com").is_err());
}

#[test]
fn trap_percent_encoded_hosts() {
    assert_eq!(host("http://ex%61mple%2Ecom/"), "example.com");
    assert_eq!(host("ex%61mple.com"), "example.com");
    assert!(matches!(Key::host("http://a%2Fb/"), Err(KeyError::Host(_))));
}

#[test]
fn trap_empty_host() {
    for text in ["", "  ", ":80"] {
        assert_eq!(Key::host(text), Err(KeyError::Empty), "{text:?}");
    }
    assert!(Key::host("http://").is_err());
    assert!(Key::host("http://:80/").is_err());
}

#[test]
fn trap_long_names_are_bounded() {
    let label = "a".repeat(50);
    let name = |labels: usize, rest: &str| format!("{}{rest}", format!("{label}.").repeat(labels));
    assert_eq!(
        Key::host(&name(4, &"b".repeat(49))).map(|key| key.as_str().len()),
        Ok(253)
    );
    assert!(
        Key::host(&format!("{}.", name(4, &"b".repeat(49)))).is_ok(),
        "the root's dot is free"
    );
    assert_eq!(Key::host(&name(4, &"b".repeat(50))), Err(KeyError::TooLong));
    assert_eq!(Key::host(&"a.".repeat(100_000)), Err(KeyError::TooLong));
    assert_eq!(Key::custom(&"a".repeat(254)), Err(KeyError::TooLong));
}

#[test]
fn trap_other_schemes_are_refused() {
    for text in [
        "ftp://example.com/",
        "file:///etc/passwd",
        "ws://example.com/",
        "data://x",
    ] {
        assert_eq!(Key::host(text), Err(KeyError::Scheme), "{text}");
    }
    for text in [
        "mailto:a@example.com",
        "javascript:alert(1)",
        "//example.com",
        "example.com/a",
    ] {
        assert!(Key::host(text).is_err(), "{text}");
    }
}

#[test]
fn a_site_is_the_registrable_domain_of_all_ports() {
    assert_eq!(
        site("https://www.a.example.co.uk:8443/x"),
        "site/example.co.uk"
    );
    assert_eq!(site("example.com"), "site/example.com");
    assert_eq!(site("me.github.io"), "site/me.github.io");
    assert_eq!(site("www.食狮.公司.cn"), "site/xn--85x722f.xn--55qx5d.cn");
}

#[test]
fn a_host_without_a_registrable_domain_is_its_own_site() {
    for text in [
        "localhost:8080",
        "co.uk",
        "a.b.internal",
        "127.0.0.1:8080",
        "[::1]:8080",
    ] {
        assert_eq!(site(text), text);
    }
}

#[test]
fn trap_mapped_addresses_are_the_address() {
    let mapped = Key::address("::ffff:192.0.2.1".parse().expect("an address"));
    assert_eq!(
        mapped,
        Key::address("192.0.2.1".parse().expect("an address"))
    );
    assert_eq!(mapped.as_str(), "address/192.0.2.1");
}

#[test]
fn kinds_never_collide() {
    let address = "192.0.2.1".parse().expect("an address");
    let keys = [
        Key::host("example.com"),
        Key::site("example.com"),
        Key::custom("example.com"),
        Key::egress_host("p", "example.com"),
        Key::custom("7"),
        Key::host("custom:7"),
        Key::host("192.0.2.1"),
        Ok(Key::address(address)),
        Key::custom("p/example.com"),
        Key::egress_host("a/b", "c"),
        Key::egress_host("a", "b"),
    ];
    for (i, a) in keys.iter().enumerate() {
        assert!(a.is_ok(), "{a:?}");
        assert!(keys[i + 1..].iter().all(|b| a != b), "{a:?}");
    }
}

#[test]
fn free_texts_are_bounded_and_printable() {
    assert_eq!(Key::custom(""), Err(KeyError::Empty));
    assert_eq!(Key::custom("a\nb"), Err(KeyError::Control));
    // Regression: a table displayed such a text as if it were another key.
    for alike in ["\u{202e}ltr", "ltr\u{200b}", "\u{feff}ltr"] {
        assert_eq!(Key::custom(alike), Err(KeyError::Control), "{alike:?}");
    }
    assert!(Key::custom("\u{1f468}\u{200d}\u{1f469}").is_ok());
    assert_eq!(Key::egress_host("", "example.com"), Err(KeyError::Empty));
    assert_eq!(
        Key::custom("Team A/7").map(|key| key.to_string()),
        Ok("custom/Team A/7".into())
    );
}

#[test]
fn each_kind_names_a_request() {
    let page = url("https://www.example.com:8443/a");
    let address = Some("192.0.2.1".parse().expect("an address"));
    let key = |kind: KeyKind| {
        kind.key(&page, address, Some("proxy-1"))
            .map(|key| key.to_string())
    };
    assert_eq!(key(KeyKind::Host), Ok("www.example.com:8443".into()));
    assert_eq!(key(KeyKind::Site), Ok("site/example.com".into()));
    assert_eq!(key(KeyKind::Address), Ok("address/192.0.2.1".into()));
    assert_eq!(
        key(KeyKind::EgressHost),
        Ok("egress/proxy-1/www.example.com:8443".into())
    );
    assert_eq!(
        KeyKind::Address.key(&page, None, None),
        Err(KeyError::AddressUnknown)
    );
    assert_eq!(
        KeyKind::EgressHost.key(&page, None, None),
        Key::of_url(&page)
    );
    let literal = KeyKind::Address.key(&url("http://[::ffff:192.0.2.9]:81/"), None, None);
    assert_eq!(
        literal.map(|key| key.to_string()),
        Ok("address/192.0.2.9".into())
    );
    let other = KeyKind::Address.key(&url("ftp://192.0.2.9/"), address, None);
    assert_eq!(other, Err(KeyError::Scheme));
}

#[test]
fn kinds_read_back_as_printed() {
    for kind in KeyKind::ALL {
        assert_eq!(kind.to_string().parse(), Ok(kind));
    }
    assert_eq!("Host".parse::<KeyKind>(), Err(UnknownKeyKind));
}

#[test]
fn stored_keys_are_checked_when_read() {
    let key = Key::egress_host("p", "example.com").expect("a key");
    let bytes = postcard::to_stdvec(&key).expect("bytes");
    assert_eq!(postcard::from_bytes::<Key>(&bytes), Ok(key));
    assert_eq!(Key::parse("address/example.com"), Err(KeyError::Address));
    let bad = postcard::to_stdvec("a b").expect("bytes");
    assert!(postcard::from_bytes::<Key>(&bad).is_err());
}

/// Texts made of the characters of hosts, ports, addresses and prefixes.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,40}",
        "(https?://)?[a-zA-Z0-9.\\-:@%\\[\\]/üß。_]{0,40}",
        "(site|address|egress|custom)/[a-z0-9./:\\[\\]]{0,30}",
        "[0-9a-f:.]{0,30}",
    ]
}

proptest! {
    #[test]
    fn host_keys_are_stable_bounded_and_have_no_slash(text in text()) {
        if let Ok(key) = Key::host(&text) {
            prop_assert_eq!(&Key::host(key.as_str()).expect("its own text"), &key);
            prop_assert!(key.as_str().len() <= host::HOST_LEN_MAX + ":65535".len());
            prop_assert!(!key.as_str().contains('/'));
        }
    }

    #[test]
    fn every_key_reads_back_from_its_text(text in text(), egress in "\\PC{0,20}", a in any::<[u8; 16]>()) {
        let keys = [
            Key::parse(&text),
            Key::host(&text),
            Key::site(&text),
            Key::custom(&text),
            Key::egress_host(&egress, &text),
            Ok(Key::address(IpAddr::from(a))),
        ];
        for key in keys.into_iter().flatten() {
            prop_assert_eq!(&Key::parse(key.as_str()).expect("its own text"), &key);
        }
    }

    #[test]
    fn a_url_and_its_text_name_one_host(text in "https?://[a-zA-Z0-9.\\-:%\\[\\]ü]{1,30}/[a-z]{0,5}") {
        if let Ok(url) = Url::parse(&text) {
            prop_assert_eq!(Key::of_url(&url), Key::host(&text));
        }
    }
}
