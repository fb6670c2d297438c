//! `politely presets`: the policies of known APIs, which the binary contains.

use politely::policy::RuleBook;

use crate::args::{PresetsArgs, PresetsCommand};
use crate::exit::{Exit, Wrong};

/// The presets by name.
const PRESETS: [(&str, &str); 13] = [
    ("anthropic", include_str!("../presets/anthropic.toml")),
    ("discord", include_str!("../presets/discord.toml")),
    ("gemini", include_str!("../presets/gemini.toml")),
    ("github", include_str!("../presets/github.toml")),
    ("gitlab", include_str!("../presets/gitlab.toml")),
    ("jira", include_str!("../presets/jira.toml")),
    ("openai", include_str!("../presets/openai.toml")),
    ("reddit", include_str!("../presets/reddit.toml")),
    ("shopify", include_str!("../presets/shopify.toml")),
    ("slack", include_str!("../presets/slack.toml")),
    ("telegram", include_str!("../presets/telegram.toml")),
    ("wikimedia", include_str!("../presets/wikimedia.toml")),
    ("x", include_str!("../presets/x.toml")),
];

pub(crate) fn run(args: &PresetsArgs) -> Result<Exit, Wrong> {
    match &args.command {
        PresetsCommand::List => {
            for (name, text) in PRESETS {
                let book = parse(name, text)?;
                let about = book.preset().map(|preset| (&*preset.about, &*preset.as_of));
                let (about, as_of) = about.unwrap_or_default();
                println!("{name:<10} {as_of:<8} {about}");
            }
        }
        PresetsCommand::Show { name } => print!("{}", find(name)?),
    }
    Ok(Exit::AllFetched)
}

/// Returns the text of a preset.
///
/// # Errors
/// There is no such preset.
pub(crate) fn find(name: &str) -> Result<&'static str, Wrong> {
    let known = PRESETS.iter().find(|(known, _)| *known == name);
    known.map(|(_, text)| *text).ok_or_else(|| {
        let names: Vec<&str> = PRESETS.iter().map(|(name, _)| *name).collect();
        let name = name.escape_debug();
        Wrong(format!(
            "no preset `{name}`; there are {}",
            names.join(", ")
        ))
    })
}

/// Reads a preset.
///
/// # Errors
/// A test checks that every preset can be read.
pub(crate) fn parse(name: &str, text: &str) -> Result<RuleBook, Wrong> {
    let read = text.parse();
    read.map_err(|why| Wrong(format!("preset {name}: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_names_its_source_and_date() {
        for (name, text) in PRESETS {
            let book = parse(name, text).map_err(|why| why.0).unwrap();
            let preset = book.preset().unwrap();
            assert_eq!(preset.name, name);
            assert!(!preset.sources.is_empty() && !preset.about.is_empty());
            assert!(
                preset
                    .sources
                    .iter()
                    .all(|source| source.starts_with("https://"))
            );
            assert_eq!(preset.as_of.len(), "2025-06".len());
            assert!(!book.rules().is_empty());
            assert!(book.rules().iter().all(|rule| !rule.limits.is_empty()));
        }
        let names: Vec<&str> = PRESETS.iter().map(|(name, _)| *name).collect();
        assert!(names.is_sorted());
        assert!(find("nobody").is_err());
    }
}
