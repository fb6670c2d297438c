//! Tests that trouble comes first, and that links lead to it.

use serde_json::json;

use super::browser::{Screen, browse};
use super::cell;

const SHOWN: &str = "[...document.querySelectorAll('.need')].filter((need) => !need.hidden).map((need) => need.textContent).join(', ')";

#[test]
fn keys_with_trouble_come_first_and_are_counted_above() {
    browse(Screen::Desk, |page, coordinator| async move {
        let keys = ["a.example", "b.example"];
        coordinator.visit("worker", &keys, 200, json!({})).await;
        page.until_rows(&keys).await;
        page.until("document.querySelector('.needs h2').textContent === 'Nothing needs attention'")
            .await;
        coordinator
            .visit("worker", &["y.example", "y.example"], 429, json!({}))
            .await;
        let challenge = json!({ "cf-mitigated": "challenge" });
        coordinator
            .visit("worker", &["z.example"; 2], 403, challenge)
            .await;
        page.until_rows(&["z.example", "y.example", "a.example", "b.example"])
            .await;
        page.until(&format!(
            "{SHOWN} === '1 blocked, 2 refused above 1 %' && document.querySelector('.needs h2').textContent === 'Needs attention'"
        ))
        .await;
        page.until(&format!(
            "{}?.startsWith('refused: ')",
            cell("y.example", "Why")
        ))
        .await;
        page.click(".need[data-need=refused]").await;
        page.until_rows(&["z.example", "y.example"]).await;
        // The link leads another person to the same view.
        let link = page.js("return location.hash").await;
        assert_eq!(link, json!("#/?needs=refused"));
        page.open("#/workers").await;
        page.until_rows(&["worker"]).await;
        page.open("#/?needs=blocked").await;
        page.until_rows(&["z.example"]).await;
        page.open("#/?needs=refused").await;
        page.until_rows(&["z.example", "y.example"]).await;
        page.until("document.querySelector('.need[data-need=refused]').getAttribute('aria-pressed') === 'true'").await;
        page.click(".need[data-need=refused]").await;
        page.until("document.querySelectorAll('tbody tr').length === 4")
            .await;
    });
}

#[test]
fn the_last_half_hour_is_there_when_the_table_is_painted() {
    browse(Screen::Desk, |page, coordinator| async move {
        let twice = ["a.example", "a.example"];
        coordinator.visit("worker", &twice, 200, json!({})).await;
        coordinator.visit("worker", &twice, 429, json!({})).await;
        // This notes the first row as it is painted, before a second answer comes.
        page.open("#/workers").await;
        page.js("new MutationObserver((_, watching) => {
               const spark = document.querySelector('.row-spark');
               if (!spark?.getAttribute('aria-label')) return;
               window.first = [spark.getAttribute('aria-label'), spark.querySelector('.granted').getAttribute('d')];
               watching.disconnect();
             }).observe(document.querySelector('main'), { subtree: true, childList: true, attributes: true });")
            .await;
        page.open("#/").await;
        page.until("window.first").await;
        let first = page.js("return window.first").await;
        assert_eq!(
            first[0],
            json!("Last 30 minutes: 4 granted, 2 refused"),
            "{first}"
        );
        assert!(first[1].as_str().is_some_and(|path| path.starts_with('M')));
    });
}

#[test]
fn changes_of_rates_are_events_only_if_chosen() {
    browse(Screen::Desk, |page, _coordinator| async move {
        page.open("#/events").await;
        let boxes = "[...document.querySelectorAll('.kind')].filter((kind) => kind.querySelector('input').checked).map((kind) => kind.textContent).join()";
        page.until(&format!(
            "{boxes} === 'hold,breaker,quarantine,operator,config,lock,missed'"
        ))
        .await;
        page.click(".kind:nth-of-type(2) input").await;
        page.until("location.hash.startsWith('#/events?kinds=') && location.hash.includes('rate')")
            .await;
        page.open("#/events?kinds=hold,rate").await;
        page.until(&format!("{boxes} === 'hold,rate'")).await;
    });
}

#[test]
fn a_phone_shows_six_keys_at_once() {
    browse(Screen::Handset, |page, coordinator| async move {
        let keys: Vec<String> = (0..12).map(|i| format!("host-{i:02}.example")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        coordinator.visit("worker", &keys, 200, json!({})).await;
        coordinator
            .visit("worker", &["m.example", "m.example"], 429, json!({}))
            .await;
        page.until("document.querySelectorAll('tbody tr').length === 13")
            .await;
        page.until(&format!("{SHOWN} === '1 refused above 1 %'"))
            .await;
        let seen = page
            .js("return [...document.querySelectorAll('tbody tr')].filter((row) => row.getBoundingClientRect().bottom <= innerHeight).length")
            .await;
        assert!(seen.as_u64() >= Some(6), "{seen} keys");
        let widths = page
            .js("return [document.documentElement.scrollWidth, innerWidth]")
            .await;
        assert_eq!(widths, json!([390, 390]));
    });
}
