//! Messages about an unavailable coordinator or engine: each trouble once, and then its end.

use crate::token;

/// The troubles reported since the last answer, without their numbers.
pub(crate) struct Unavailable {
    who: String,
    said: Vec<String>,
}

impl Unavailable {
    /// Creates the messages about `who`, which is the subject of each.
    pub(crate) fn new(who: &str) -> Self {
        Self {
            who: who.to_owned(),
            said: Vec::new(),
        }
    }

    /// Returns the message to print, if there is a new one. `trouble` is why there is no answer
    /// now.
    pub(crate) fn news(&mut self, trouble: Option<&str>) -> Option<String> {
        let who = &self.who;
        let Some(why) = trouble else {
            let was_away = !std::mem::take(&mut self.said).is_empty();
            return was_away.then(|| format!("{who} answers again"));
        };
        let words: String = why.chars().filter(|c| !c.is_ascii_digit()).collect();
        if self.said.contains(&words) {
            return None;
        }
        self.said.push(words);
        // The library's text for a coordinator that answers, and refuses some requests.
        if why.starts_with("refuses ") {
            return Some(format!("{who} {why}"));
        }
        // The library's text for an outage that is bridged by the fallback share.
        let then = if why.contains("goes on with its share") {
            ""
        } else {
            ": nothing leaves until it does"
        };
        let advice = token::advice(why);
        Some(format!("{who} does not answer ({why}{advice}){then}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trouble_is_told_once_and_its_end() {
        let mut unavailable = Unavailable::new("it");
        let mut news = |trouble| unavailable.news(trouble);
        assert_eq!(news(None), None);
        let first = news(Some("unavailable for 1.2 s: refused"));
        assert_eq!(
            first.as_deref(),
            Some(
                "it does not answer (unavailable for 1.2 s: refused): nothing leaves until it does"
            )
        );
        assert_eq!(news(Some("unavailable for 13.4 s: refused")), None);
        let another = news(Some("401 Unauthorized")).unwrap();
        assert!(another.contains("401") && another.contains("--token-file"));
        assert_eq!(news(Some("unavailable for 20.0 s: refused")), None);
        assert_eq!(news(None).as_deref(), Some("it answers again"));
        assert_eq!(news(None), None);
        assert!(news(Some("unavailable for 1.0 s: refused")).is_some());
        let refused = "refuses requests of a.example: labels: send the label";
        assert_eq!(
            news(Some(refused)),
            Some("it refuses requests of a.example: labels: send the label".to_owned())
        );
    }
}
