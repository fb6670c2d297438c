//! Messages about settings of the engine that lose acknowledged writes: each once, and its end.

use politely::cells::{Risk, Severity};

/// The settings reported so far that have not been changed since.
#[derive(Default)]
pub(crate) struct Risks(Vec<Risk>);

impl Risks {
    /// Returns the messages to print. `now` has the settings as last read.
    pub(crate) fn news(&mut self, now: Vec<Risk>) -> Vec<String> {
        let before = std::mem::replace(&mut self.0, now);
        let ended = before.iter().filter(|risk| !self.0.contains(risk));
        let ended = ended.map(|Risk { text, .. }| format!("no longer: the engine {text}"));
        let new = self.0.iter().filter(|risk| !before.contains(risk));
        let new = new.map(|Risk { severity, text }| match severity {
            Severity::Critical => format!("error: the engine {text}"),
            Severity::Warning => format!("warning: the engine {text}"),
        });
        ended.chain(new).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_is_reported_once_and_its_end() {
        let risk = |severity, text: &str| Risk {
            severity,
            text: text.to_owned(),
        };
        let evicts = risk(Severity::Critical, "evicts");
        let forgets = risk(Severity::Warning, "forgets");
        let mut risks = Risks::default();
        assert!(risks.news(Vec::new()).is_empty());
        assert_eq!(
            risks.news(vec![evicts.clone(), forgets.clone()]),
            ["error: the engine evicts", "warning: the engine forgets"]
        );
        assert!(risks.news(vec![evicts.clone(), forgets.clone()]).is_empty());
        assert_eq!(risks.news(vec![forgets]), ["no longer: the engine evicts"]);
        assert_eq!(
            risks.news(vec![evicts]),
            ["no longer: the engine forgets", "error: the engine evicts"]
        );
    }
}
