//! The dashboard: files in the binary, without a build step and without resources from other sites.
//!
//! The page shows names and headers that others choose. It inserts them as text only. If that ever
//! fails, the content security policy still blocks foreign scripts and resources.

use axum::Router;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

macro_rules! files {
    ($($name:literal: $kind:ident),+ $(,)?) => {
        /// Name, content type and content of each file.
        const FILES: &[(&str, &str, &str)] = &[$(($name, $kind, include_str!(concat!("page/", $name)))),+];
    };
}

files! {
    "index.html": HTML,
    "style.css": CSS,
    "theme.js": JS,
    "app.js": JS,
    "api.js": JS,
    "audit.js": JS,
    "chart.js": JS,
    "crawls.js": JS,
    "dom.js": JS,
    "events.js": JS,
    "fleet.js": JS,
    "form.js": JS,
    "key.js": JS,
    "keyboard.js": JS,
    "keys.js": JS,
    "mix.js": JS,
    "needs.js": JS,
    "past.js": JS,
    "poll.js": JS,
    "settings.js": JS,
    "spark.js": JS,
    "states.js": JS,
    "table.js": JS,
    "trouble.js": JS,
    "words.js": JS,
    "workers.js": JS,
}

/// Returns the routes of the page at `/` and of its files.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES
        .iter()
        .fold(Router::new(), |router, &(name, kind, text)| {
            let path = match name {
                "index.html" => "/".to_owned(),
                name => format!("/{name}"),
            };
            // Browsers revalidate on each load, so that a page never mixes files of two versions.
            // An unchanged file is answered 304 without a body.
            let tag = format!("\"{:08x}\"", crc32fast::hash(text.as_bytes()));
            router.route(
                &path,
                get(move |headers: HeaderMap| async move { answer(&headers, kind, text, &tag) }),
            )
        })
}

fn answer(asked: &HeaderMap, kind: &'static str, text: &'static str, tag: &str) -> Response {
    let known = asked.get(IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
    let about = [
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (ETAG, tag),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    if known.is_some_and(|tags| tags.split(',').any(|known| is_tag(known, tag))) {
        return (StatusCode::NOT_MODIFIED, about).into_response();
    }
    (about, [(CONTENT_TYPE, kind)], text).into_response()
}

/// Returns whether `known` names `tag`. Ignores the mark of a weak tag, which compressing proxies
/// add.
fn is_tag(known: &str, tag: &str) -> bool {
    let known = known.trim();
    known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn every_file_of_the_page_is_served() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/page");
        let names = fs::read_dir(folder).expect("the page is there");
        let there: BTreeSet<String> = names
            .map(|entry| entry.expect("an entry").file_name().into_string())
            .map(|name| name.expect("UTF-8"))
            .collect();
        let served = FILES.iter().map(|(name, _, _)| (*name).to_owned());
        assert_eq!(served.collect::<BTreeSet<_>>(), there);
    }

    #[test]
    fn every_import_leads_to_a_file() {
        for (name, _, text) in FILES {
            for line in text.lines().filter(|line| line.starts_with("import ")) {
                let from = line.split('"').nth(1).expect("a path in quotes");
                let path = from.strip_prefix("./").expect("a file beside it");
                let served = FILES.iter().any(|(name, _, _)| *name == path);
                assert!(served, "{name} imports {from}");
            }
        }
    }

    #[test]
    fn nothing_is_put_in_as_markup() {
        let markup = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
        ];
        for (name, _, text) in FILES {
            for way in markup {
                assert!(!text.contains(way), "{name} uses {way}");
            }
        }
    }

    #[test]
    fn a_browser_that_has_it_is_not_sent_it_again() {
        let asked = |tags: &'static str| {
            let tags = HeaderValue::from_static(tags);
            let headers = HeaderMap::from_iter([(IF_NONE_MATCH, tags)]);
            answer(&headers, HTML, "text", "\"12345678\"").status()
        };
        assert_eq!(asked("\"12345678\""), StatusCode::NOT_MODIFIED);
        assert_eq!(asked("\"other\", W/\"12345678\""), StatusCode::NOT_MODIFIED);
        assert_eq!(asked("\"87654321\""), StatusCode::OK);
    }
}
