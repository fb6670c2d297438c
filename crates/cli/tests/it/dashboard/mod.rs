//! Tests of the dashboard: a real coordinator in a real browser.

mod axe;
mod browser;
mod coordinator;
mod strangers;
mod trouble;

use fantoccini::key::Key;
use serde_json::{Value, json};

use browser::{Screen, browse, browse_with};

/// Returns a JavaScript expression for the text of a column in a key's row.
fn cell(key: &str, label: &str) -> String {
    format!(
        "[...document.querySelectorAll('tr')].find((row) => row.querySelector('td.name')?.textContent === '{key}')\
         ?.querySelector('td[data-label=\"{label}\"]')?.textContent"
    )
}

#[test]
fn the_table_fills_and_stays_true() {
    browse(Screen::Desk, |page, coordinator| async move {
        page.until("document.querySelector('.none')?.textContent.startsWith('No keys yet')")
            .await;
        let keys = ["a.example", "b.example"];
        coordinator.visit("worker", &keys, 200, json!({})).await;
        page.until_rows(&keys).await;
        page.until(&format!("{} === '1'", cell("a.example", "Granted")))
            .await;
        coordinator.acquire("worker", &["a.example"]).await;
        page.until(&format!("{} === '2'", cell("a.example", "Granted")))
            .await;
        page.until(&format!("{} === '1/8'", cell("a.example", "In flight")))
            .await;
        coordinator.acquire("worker", &["c.example"]).await;
        page.until_rows(&["a.example", "b.example", "c.example"])
            .await;
        page.until("[...document.querySelectorAll('.tile')].some((tile) => tile.innerText.startsWith('keys\\n3'))").await;
        page.open("#/workers").await;
        page.until_rows(&["worker"]).await;
        page.until(&format!("{} === '4'", cell("worker", "Granted")))
            .await;
    });
}

#[test]
fn keys_are_searched_filtered_and_sorted() {
    browse(Screen::Desk, |page, coordinator| async move {
        let keys = ["ant.example", "bee.example", "cow.test"];
        coordinator.visit("worker", &keys, 200, json!({})).await;
        for (key, rate) in [
            ("ant.example", 2.0),
            ("bee.example", 9.0),
            ("cow.test", 4.0),
        ] {
            coordinator.patch(key, json!({ "rate": rate })).await;
        }
        coordinator
            .patch("bee.example", json!({ "hold_ms": 600_000 }))
            .await;
        page.until_rows(&keys).await;
        page.click("th.number button").await;
        page.until_rows(&["bee.example", "cow.test", "ant.example"])
            .await;
        page.until(
            "document.querySelector('th[aria-sort=descending]').textContent.startsWith('Rate')",
        )
        .await;
        page.click("th.number button").await;
        page.until_rows(&["ant.example", "cow.test", "bee.example"])
            .await;
        page.fill("#search", "EXAMPLE").await;
        page.until_rows(&["ant.example", "bee.example"]).await;
        page.click("select[aria-label=State] option[value=ready]")
            .await;
        page.until_rows(&["ant.example"]).await;
        // The address contains the whole query, so a user can send it to another person.
        let address = page.js("return location.hash").await;
        page.open("#/workers").await;
        page.until_rows(&["worker"]).await;
        page.open(address.as_str().expect("text")).await;
        page.until_rows(&["ant.example"]).await;
    });
}

#[test]
fn a_hundred_thousand_keys_are_a_screenful() {
    browse(Screen::Desk, |page, coordinator| async move {
        let keys: Vec<String> = (0..100_000)
            .map(|i| format!("host{i:05}.example"))
            .collect();
        for keys in keys.chunks(4_096) {
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            coordinator.acquire("worker", &keys).await;
        }
        page.until("document.querySelector('.found')?.textContent === '1–100 of 100,000'")
            .await;
        page.press("]").await;
        page.until("document.querySelector('.found').textContent === '101–200 of 100,000'")
            .await;
        page.until("document.querySelector('td.name').textContent === 'host00100.example'")
            .await;
        page.until("document.querySelectorAll('tbody tr').length === 100")
            .await;
        let elements = page
            .js("return document.querySelectorAll('*').length")
            .await;
        assert!(elements.as_u64().is_some_and(|n| n < 5_000), "{elements}");
        axe::finds_nothing(&page, "100,000 keys").await;
        page.fill("#search", "host77777").await;
        page.until_rows(&["host77777.example"]).await;
    });
}

#[test]
fn a_slow_answer_is_not_shown_over_a_newer_one() {
    browse(Screen::Desk, |page, coordinator| async move {
        let keys = ["ant.example", "bee.example"];
        coordinator.visit("worker", &keys, 200, json!({})).await;
        page.until_rows(&keys).await;
        // The answer for `ant` arrives when the test releases it, even if the page has aborted its
        // request.
        page.js("const asked = window.fetch;
             window.fetch = async (url, options) => {
               if (!url.includes('q=ant')) return asked(url, options);
               const answer = await asked(url, { ...options, signal: undefined });
               await new Promise((through) => { window.through = through; });
               return answer;
             };")
            .await;
        page.fill("#search", "ant").await;
        page.until("window.through").await;
        page.fill("#search", "bee").await;
        page.until_rows(&["bee.example"]).await;
        // The next poll would soon correct a wrong table. So the test counts whether the table was
        // ever wrong.
        let ants = page
            .js(
                "let ants = 0;
                 const look = () => { ants += document.querySelector('td.name')?.textContent === 'ant.example'; };
                 new MutationObserver(look).observe(document.querySelector('main'), { subtree: true, childList: true, characterData: true });
                 through();
                 return new Promise((told) => setTimeout(() => told(ants), 500));",
            )
            .await;
        assert_eq!(ants, json!(0));
        page.until_rows(&["bee.example"]).await;
    });
}

#[test]
fn nothing_is_asked_while_nobody_looks() {
    browse(Screen::Desk, |page, coordinator| async move {
        coordinator
            .visit("worker", &["a.example"], 200, json!({}))
            .await;
        page.until_rows(&["a.example"]).await;
        page.js("window.asked = 0;
             const fetched = window.fetch;
             window.fetch = (...call) => { window.asked += 1; return fetched(...call); };
             window.look = (hidden) => {
               Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
               document.dispatchEvent(new Event('visibilitychange'));
             };
             look(true);")
            .await;
        // This is twice the longest interval between two polls.
        let asked = page
            .js("return new Promise((told) => setTimeout(() => told(window.asked), 4000))")
            .await;
        assert_eq!(asked, json!(0));
        coordinator
            .visit("worker", &["b.example"], 200, json!({}))
            .await;
        page.js("look(false)").await;
        page.until_rows(&["a.example", "b.example"]).await;
    });
}

#[test]
fn a_key_tells_its_past() {
    browse(Screen::Desk, |page, coordinator| async move {
        for _ in 0..5 {
            coordinator
                .visit("worker", &["a.example"], 200, json!({}))
                .await;
        }
        let refused = json!({ "Retry-After": "120" });
        coordinator
            .visit("worker", &["a.example"], 429, refused)
            .await;
        page.open("#/key/a.example").await;
        page.until("document.querySelector('h1')?.textContent === 'a.example'")
            .await;
        page.until("document.querySelector('path.rate')?.getAttribute('d').startsWith('M')")
            .await;
        page.until("document.querySelectorAll('circle.refusal').length >= 1")
            .await;
        page.until("document.querySelectorAll('rect.ok').length >= 1 && document.querySelector('path.p50').getAttribute('d')").await;
        page.until("document.querySelector('.key-head .badge').textContent.match(/hold|parked/)")
            .await;
        page.until("document.querySelector('.why-now').textContent.includes('Retry-After: 120')")
            .await;
        page.until("document.querySelectorAll('.decisions li').length >= 1")
            .await;
        page.js("document.querySelector('.past').focus()").await;
        page.press_key(Key::Left).await;
        page.until("document.querySelector('.readout').textContent.includes('1 refused')")
            .await;
        page.until("document.querySelector('[aria-label=\"Answers of the last day\"] tbody')?.innerText.includes('200: 5, 429: 1')")
            .await;
    });
}

#[test]
fn an_operator_sets_holds_lifts_and_forgets() {
    browse(Screen::Desk, |page, coordinator| async move {
        coordinator
            .visit("worker", &["a.example"], 200, json!({}))
            .await;
        page.open("#/key/a.example").await;
        page.fill("input[name=rate]", "-1").await;
        page.click("form[aria-label=Limits] button").await;
        // The coordinator's message is shown beside the field that it names.
        page.until("document.querySelector('input[name=rate][aria-invalid]')?.closest('.field').innerText.includes('must be from 0.000001')").await;
        page.fill("input[name=rate]", "0.5").await;
        page.click("form[aria-label=Limits] button").await;
        page.until(
            "document.querySelector('form[aria-label=Limits] .told').textContent === 'Set.'",
        )
        .await;
        assert_eq!(
            coordinator.key("a.example").await["limits"]["rate"],
            json!(0.5)
        );
        let back = "[...document.querySelectorAll('button')].find((button) => button.textContent === 'Take back: rate')";
        page.until(&format!("!{back}.closest('.careful').hidden"))
            .await;
        page.js(&format!("{back}.click()")).await;
        page.until(&format!("{back}.closest('.careful').hidden"))
            .await;
        let limits = &coordinator.key("a.example").await["limits"];
        assert_eq!(limits["rate"], Value::Null, "{limits}");
        page.fill("input[name=rate]", "0.5").await;
        page.click("form[aria-label=Limits] button").await;
        page.until(&format!("!{back}.closest('.careful').hidden"))
            .await;
        page.fill("input[name=hold_s]", "120").await;
        page.click("form[aria-label=Hold] button").await;
        page.until("document.querySelector('.key-head .badge').textContent.match(/hold|parked/)")
            .await;
        page.open("#/").await;
        page.until(&format!("{} === '0.50'", cell("a.example", "Rate /s")))
            .await;
        page.until(&format!(
            "{}?.match(/hold|parked/)",
            cell("a.example", "State")
        ))
        .await;
        page.open("#/key/a.example").await;
        page.js("[...document.querySelectorAll('button')].find((button) => button.textContent === 'Lift').click()").await;
        page.until("document.querySelector('.key-head .badge').textContent.match(/ready|pacing/)")
            .await;
        page.click("button.danger").await;
        page.until("document.activeElement.textContent === 'Keep it'")
            .await;
        page.press_key(Key::Enter).await;
        assert_eq!(
            coordinator.key("a.example").await["limits"]["rate"],
            json!(0.5)
        );
        page.click("button.danger").await;
        page.click(".asked button.danger").await;
        page.until("[...document.querySelectorAll('.told')].some((told) => told.textContent === 'Forgotten.')").await;
        page.open("#/settings").await;
        page.fill("input[name=rate_per_host]", "7").await;
        page.click("button[type=submit]").await;
        page.until("document.querySelector('.facts').innerText.includes('7.00/s')")
            .await;
        page.fill("input[name=in_flight]", "0").await;
        page.click("main button[type=submit]").await;
        page.until("document.querySelector('input[name=in_flight][aria-invalid]')")
            .await;
        page.open("#/audit").await;
        page.until("document.querySelector('tbody tr')?.innerText.includes('worker')")
            .await;
        page.open("#/events").await;
        page.until("document.querySelector('.events')?.innerText.includes('the configuration was changed')").await;
    });
}

#[test]
fn an_operator_resets_a_budget() {
    browse(Screen::Desk, |page, coordinator| async move {
        let limits = json!({ "limits": ["5/h", "9/2h"] });
        coordinator.patch("a.example", limits).await;
        let visited = ["a.example"];
        coordinator.visit("worker", &visited, 200, json!({})).await;
        page.open("#/key/a.example").await;
        page.until("document.querySelector('.budgets')?.innerText.includes('4 left')")
            .await;
        page.click(".budgets button.danger").await;
        page.until("document.activeElement.textContent === 'Keep it'")
            .await;
        page.click(".budgets .asked button.danger").await;
        page.until("document.querySelector('.budgets .told').textContent === 'Whole again.'")
            .await;
        page.until("document.querySelector('.budgets').innerText.includes('5 left')")
            .await;
        let budgets = &coordinator.key("a.example").await["budgets"];
        let left = [&budgets[0]["remaining"], &budgets[1]["remaining"]];
        assert_eq!(left, [&json!(5), &json!(8)], "{budgets}");
    });
}

#[test]
fn with_a_token_it_is_the_password() {
    const TOKEN: &str = "a-token-of-the-tests";
    browse_with(
        Screen::Desk,
        Some(TOKEN),
        |mut page, coordinator| async move {
            page.until("document.readyState === 'complete' && !document.querySelector('main')")
                .await;
            page.log_in(TOKEN).await;
            let visited = ["a.example"];
            coordinator.visit("worker", &visited, 200, json!({})).await;
            page.until_rows(&visited).await;
            // The page's own requests have the password too: changes, and the stream of events.
            page.open("#/key/a.example").await;
            page.fill("input[name=rate]", "0.5").await;
            page.click("form[aria-label=Limits] button").await;
            page.until(
                "document.querySelector('form[aria-label=Limits] .told').textContent === 'Set.'",
            )
            .await;
            page.open("#/events").await;
            coordinator.patch("b.example", json!({ "rate": 3 })).await;
            page.until("document.querySelector('.events')?.innerText.includes('at most 3/s')")
                .await;
        },
    );
}

#[test]
fn hands_stay_on_the_keyboard() {
    browse(Screen::Desk, |page, coordinator| async move {
        let keys = ["a.example", "b.example", "c.example"];
        coordinator.visit("worker", &keys, 200, json!({})).await;
        page.until_rows(&keys).await;
        page.press("/").await;
        page.press("example").await;
        page.until("location.hash.includes('q=example')").await;
        page.press_key(Key::Escape).await;
        page.until("document.activeElement === document.body").await;
        page.press("j").await;
        page.press("j").await;
        page.press("j").await;
        page.press("k").await;
        page.until("document.activeElement.textContent === 'b.example'")
            .await;
        page.press_key(Key::Enter).await;
        page.until("location.hash === '#/key/b.example'").await;
        page.press_key(Key::Escape).await;
        // The page returns to the same query and the same row.
        page.until("location.hash.includes('q=example') && document.activeElement.textContent === 'b.example'").await;
        page.press("?").await;
        page.until("document.querySelector('dialog').open").await;
        page.press_key(Key::Escape).await;
        page.until("!document.querySelector('dialog').open").await;
        page.press("2").await;
        page.until("location.hash === '#/workers'").await;
        page.press("t").await;
        page.until("document.documentElement.dataset.theme === 'light'")
            .await;
        page.js("location.reload()").await;
        page.until("document.readyState === 'complete' && document.documentElement.dataset.theme === 'light'").await;
    });
}

const PAGES: [&str; 6] = [
    "#/",
    "#/key/a.example",
    "#/workers",
    "#/events",
    "#/audit",
    "#/settings",
];

#[test]
fn a_phone_is_wide_enough() {
    browse(Screen::Phone, |page, coordinator| async move {
        let long = format!("{}example", "a-long-name.".repeat(20));
        let keys = ["a.example", &long];
        coordinator.visit("worker", &keys, 200, json!({})).await;
        page.until("document.querySelectorAll('tbody tr').length === 2")
            .await;
        for hash in PAGES
            .map(str::to_owned)
            .into_iter()
            .chain([format!("#/key/{long}")])
        {
            page.open(&hash).await;
            page.until("document.querySelector('main').innerText.length > 20")
                .await;
            let widths = page
                .js("return [document.documentElement.scrollWidth, innerWidth]")
                .await;
            assert_eq!(widths, json!([320, 320]), "{hash}");
        }
    });
}

/// A script that returns the lowest contrast between a text and its background, and that text.
const CONTRAST: &str = r"
const light = ([r, g, b]) => [r, g, b].map((part) => part / 255)
  .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
  .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
const parts = (colour) => colour.match(/[\d.]+/g).map(Number);
const behind = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = parts(getComputedStyle(at).backgroundColor);
    if (colour[3] !== 0) return colour;
  }
  return [255, 255, 255];
};
let worst = [21, ''];
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const element = walk.currentNode.parentElement;
  if (!walk.currentNode.data.trim() || !element.checkVisibility() || element.closest(':disabled, noscript')) continue;
  const style = getComputedStyle(element);
  const [a, b] = [light(parts(element instanceof SVGElement ? style.fill : style.color)), light(behind(element))];
  const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (contrast < worst[0]) worst = [contrast, walk.currentNode.data];
}
return worst;";

#[test]
fn it_is_readable_in_the_dark_and_in_the_light() {
    browse(Screen::Desk, |page, coordinator| async move {
        let keys = ["a.example", "b.example"];
        coordinator.visit("worker", &keys, 200, json!({})).await;
        coordinator
            .visit("worker", &["a.example"], 429, json!({}))
            .await;
        coordinator
            .patch("b.example", json!({ "hold_ms": 60_000 }))
            .await;
        let mut grounds = Vec::new();
        for theme in ["light", "dark"] {
            page.js(&format!("theme.put('{theme}')")).await;
            for hash in PAGES {
                page.open(hash).await;
                page.until("document.querySelector('main').innerText.length > 20")
                    .await;
                let worst: Value = page.js(CONTRAST).await;
                assert!(
                    worst[0].as_f64().is_some_and(|worst| worst >= 4.5),
                    "{theme} {hash}: {worst}"
                );
            }
            grounds.push(
                page.js("return getComputedStyle(document.documentElement).backgroundColor")
                    .await,
            );
        }
        assert_ne!(grounds[0], grounds[1]);
    });
}
