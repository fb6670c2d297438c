//! Keeps a crawl out of sites without end.
//!
//! A broken relative link adds a folder each time it is followed, and a server that keeps sessions
//! in URLs has each page under endless names. A calendar cannot be told from other pages by its
//! URLs: `--depth` and `--pages-per-host` bound it.

use url::Url;

/// The longest URL of a link, in bytes. Browsers and servers agree on some 2,000.
const URL_LEN_MAX: usize = 2_048;
/// The most segments of a path, as in Heritrix 20 and more than any honest site has.
const SEGMENTS_MAX: usize = 32;
/// How often a group of segments may come in a row.
const REPEATS_MAX: usize = 3;
/// The parameters that hold a session, in lower case.
const SESSIONS: [&str; 9] = [
    "cfid",
    "cftoken",
    "jsessionid",
    "oscsid",
    "phpsessid",
    "s",
    "sessionid",
    "sid",
    "zenid",
];
/// The length from which on the value of such a parameter is that of a session, and not a number.
const SESSION_LEN_MIN: usize = 16;

/// Returns the URL of a link without the session in it, or `None` if it looks like a trap.
pub(crate) fn out_of_traps(mut url: Url) -> Option<Url> {
    if has_session(&url) {
        without_session(&mut url);
    }
    let is_long = url.as_str().len() > URL_LEN_MAX;
    (!is_long && !goes_in_circles(url.path())).then_some(url)
}

/// Returns whether a parameter holds a session.
fn is_session(parameter: &str) -> bool {
    let Some((name, value)) = parameter.split_once('=') else {
        return false;
    };
    let name = name.to_ascii_lowercase();
    let is_name = SESSIONS.contains(&&*name) || name.starts_with("aspsessionid");
    let is_token = |char: char| char.is_ascii_alphanumeric() || "-_.!".contains(char);
    is_name && value.len() >= SESSION_LEN_MIN && value.chars().all(is_token)
}

fn has_session(url: &Url) -> bool {
    let in_query = url.query().unwrap_or_default().split(['&', ';']);
    let in_path = url.path().split(['/', ';']);
    in_query.chain(in_path).any(is_session)
}

fn without_session(url: &mut Url) {
    let kept = |text: &str, separator: &str| {
        let parts = text.split(separator).filter(|part| !is_session(part));
        parts.collect::<Vec<_>>().join(separator)
    };
    let segments = url.path().split('/').map(|segment| kept(segment, ";"));
    let path = segments.collect::<Vec<_>>().join("/");
    let query = url.query().map(|query| kept(query, "&"));
    url.set_path(&path);
    url.set_query(query.as_deref().filter(|query| !query.is_empty()));
}

/// Returns whether a path has too many segments, or the same ones again and again.
fn goes_in_circles(path: &str) -> bool {
    let segments: Vec<&str> = path.split('/').filter(|it| !it.is_empty()).collect();
    let count = segments.len();
    let repeats = |period: usize, start: usize| {
        let group = &segments[start..start + period];
        let rest = segments[start..].chunks(period);
        rest.take_while(|next| *next == group).count() > REPEATS_MAX
    };
    count > SEGMENTS_MAX
        || (1..=count / (REPEATS_MAX + 1))
            .any(|period| (0..=count - period).any(|start| repeats(period, start)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn out(url: &str) -> Option<String> {
        out_of_traps(Url::parse(url).unwrap()).map(Into::into)
    }

    #[test]
    fn a_session_is_no_part_of_a_link() {
        let id = "0123456789ABCDEF0123";
        for (url, without) in [
            (format!("http://a/x;jsessionid={id}?q=1"), "http://a/x?q=1"),
            (format!("http://a/x?PHPSESSID={id}"), "http://a/x"),
            (format!("http://a/x?a=1&sid={id}&b=2"), "http://a/x?a=1&b=2"),
            (
                "http://a/x?sid=12&s=cats".to_owned(),
                "http://a/x?sid=12&s=cats",
            ),
            ("http://a/x;v=1?".to_owned(), "http://a/x;v=1?"),
        ] {
            assert_eq!(out(&url).as_deref(), Some(without));
        }
    }

    #[test]
    fn a_path_that_repeats_itself_is_a_trap() {
        for path in ["a/a/a", "a/b/a/b/a/b", "1/2/3", "a/a/a/b/a/a/a"] {
            assert!(out(&format!("http://a/{path}")).is_some(), "{path}");
        }
        for path in ["a/a/a/a", "x/a/b/a/b/a/b/a/b/c", &"x/".repeat(33)] {
            assert!(out(&format!("http://a/{path}")).is_none(), "{path}");
        }
        let many: Vec<String> = (0..33).map(|n| n.to_string()).collect();
        assert!(out(&format!("http://a/{}", many.join("/"))).is_none());
        assert!(out(&format!("http://a/{}", "x".repeat(2048))).is_none());
    }

    proptest! {
        #[test]
        fn what_is_left_of_a_link_stays_as_it_is(path in "[a-z/;=?&.%]{0,60}") {
            if let Ok(url) = Url::parse(&format!("http://a/{path}"))
                && let Some(once) = out_of_traps(url)
            {
                prop_assert_eq!(out_of_traps(once.clone()), Some(once));
            }
        }
    }
}
