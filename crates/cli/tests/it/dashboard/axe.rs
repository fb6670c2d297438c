//! axe-core, which finds what people with screen readers or weak eyes stumble over.

use serde_json::{Value, json};

use super::PAGES;
use super::browser::{Page, Screen, browse};
use politely_testkit::repository;

/// Lists each violation with its elements.
const RUN: &str = "
return (async () => {
  const found = await axe.run(document, { resultTypes: ['violations'] });
  return found.violations.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html, failureSummary }) => `${html} ${failureSummary}`)}`);
})();";

/// Fails if axe finds a violation in the page as it is now.
pub(super) async fn finds_nothing(page: &Page, what: &str) {
    if page.js("return !window.axe").await == json!(true) {
        let axe = repository().join("tests/tools/node_modules/axe-core/axe.min.js");
        let source = std::fs::read_to_string(axe).expect("axe-core: run scripts/setup");
        page.js(&source).await;
    }
    let found = page.js(RUN).await;
    assert_eq!(found, json!([]), "{what}");
}

fn every_page_in_both_themes(screen: Screen) {
    browse(screen, |page, coordinator| async move {
        let keys = ["a.example", "b.example", "c.example"];
        coordinator.visit("worker", &keys, 200, json!({})).await;
        let refused = ["d.example", "d.example"];
        coordinator.visit("worker", &refused, 429, json!({})).await;
        let failing = ["e.example"; 5];
        coordinator.visit("worker", &failing, 503, json!({})).await;
        page.until("document.querySelectorAll('tbody tr').length === 5")
            .await;
        for theme in ["light", "dark"] {
            let changed: Value = page.js(&format!("theme.put('{theme}')")).await;
            assert_eq!(changed, Value::Null);
            for hash in PAGES {
                page.open(hash).await;
                page.until("document.querySelector('main').innerText.length > 20")
                    .await;
                // Colours change over 120 ms.
                page.until("document.getAnimations().length === 0").await;
                finds_nothing(&page, &format!("{theme} {hash}")).await;
            }
        }
    });
}

#[test]
fn nothing_is_found_at_a_desk() {
    every_page_in_both_themes(Screen::Desk);
}

#[test]
fn nothing_is_found_on_a_phone() {
    every_page_in_both_themes(Screen::Handset);
}
