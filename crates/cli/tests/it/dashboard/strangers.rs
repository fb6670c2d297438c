//! Tests that names and texts from unknown workers are shown, and never executed.

use serde_json::json;

use super::browser::{Screen, browse};

const KEYS: [&str; 3] = [
    "custom/<img src=x onerror=\"window.pwned=1\">",
    "custom/<script>window.pwned=2</script>",
    "custom/\"><svg onload=window.pwned=3>",
];
const CLIENT: &str = "<iframe srcdoc='<script>parent.pwned=4</script>'></iframe>";

#[test]
fn what_strangers_name_is_text() {
    browse(Screen::Desk, |page, coordinator| async move {
        let shouted = json!({ "Retry-After": "<img src=x onerror=window.pwned=5>", "Server": "<script>window.pwned=6</script>" });
        page.js("window.blocked = 0; addEventListener('securitypolicyviolation', () => window.blocked += 1)").await;
        coordinator.visit(CLIENT, &KEYS, 429, shouted).await;
        coordinator.acquire(CLIENT, &["a.example"]).await;
        let no_harm = "return [window.pwned ?? null, document.querySelectorAll('main img, main script, main iframe, main svg[onload], main [onerror]').length]";
        let mut shown = KEYS.to_vec();
        shown.sort_unstable();
        shown.insert(0, "a.example");
        page.until_rows(&shown).await;
        assert_eq!(page.js(no_harm).await, json!([null, 0]));
        for key in KEYS {
            page.js(&format!(
                "location.hash = '#/key/' + encodeURIComponent({})",
                json!(key)
            ))
            .await;
            page.until(&format!(
                "document.querySelector('h1')?.textContent === {}",
                json!(key)
            ))
            .await;
            page.until("document.querySelectorAll('.decisions li').length >= 1 && document.querySelector('path.rate')").await;
            assert_eq!(page.js(no_harm).await, json!([null, 0]), "{key}");
        }
        page.js("location.hash = '#/key/a.example'").await;
        page.until(&format!(
            "document.querySelector('td.client')?.textContent === {}",
            json!(CLIENT)
        ))
        .await;
        page.js("location.hash = '#/workers'").await;
        page.until_rows(&[CLIENT]).await;
        page.js("location.hash = '#/events'").await;
        page.until("document.querySelector('.events')?.innerText.includes('<script>')")
            .await;
        assert_eq!(page.js(no_harm).await, json!([null, 0]));

        // So far the content security policy had nothing to block. The following script is blocked.
        assert_eq!(page.js("return window.blocked").await, json!(0));
        page.js(
            "document.querySelector('main').innerHTML = '<img src=x onerror=\"window.pwned=7\">'",
        )
        .await;
        page.until("window.blocked > 0").await;
        assert_eq!(page.js("return window.pwned ?? null").await, json!(null));
    });
}
