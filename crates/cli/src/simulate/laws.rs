//! The simulated clients by name: the laws of `politely-core` and the rivals.

use politely_sim::polite::Polite;
#[cfg(feature = "rivals")]
use politely_sim::rivals;
use politely_sim::{Client, Scenario};

use politely::core::Timestamp;
use politely::core::config::Config;
use politely::core::control::LawConfig;

use crate::args::SimulatedProfile;
use crate::exit::Wrong;

/// Our laws in the list of choices and in `all`. The core may know more names.
const OURS: [&str; 3] = ["discover", "aimd", "fixed"];
const ALL: &str = "all";
/// The laws of others in the same list.
#[cfg(feature = "rivals")]
const RIVALS: &[&str] = rivals::NAMES;
#[cfg(not(feature = "rivals"))]
const RIVALS: &[&str] = &[];

/// A law or rival that can be run.
#[derive(Clone, Debug)]
pub(super) struct Contender {
    pub(super) name: String,
    who: Who,
}

#[derive(Clone, Debug)]
enum Who {
    Ours(Box<Config>),
    #[cfg(feature = "rivals")]
    Rival,
}

impl Contender {
    /// Returns the named laws, each once, in the given order.
    pub(super) fn named(names: &[String], profile: SimulatedProfile) -> Result<Vec<Self>, Wrong> {
        let mut found: Vec<Self> = Vec::new();
        let all = || ours().chain(RIVALS.iter().copied());
        let names = names.iter().map(|name| name.trim());
        let names = names.flat_map(|name| match name {
            ALL => all().collect(),
            one => vec![one],
        });
        for name in names {
            if found.iter().any(|contender| contender.name == name) {
                continue;
            }
            let who = match name.parse::<LawConfig>() {
                Ok(law) => {
                    let config = match profile {
                        SimulatedProfile::Api => Config::api(),
                        SimulatedProfile::Crawler => Config::crawler(),
                    };
                    Who::Ours(Box::new(config.with_law(law)))
                }
                #[cfg(feature = "rivals")]
                Err(_) if RIVALS.contains(&name) => Who::Rival,
                Err(_) => {
                    let choices: Vec<_> = all().chain([ALL]).collect();
                    let choices = choices.join(", ");
                    let hint = if cfg!(feature = "rivals") {
                        ""
                    } else {
                        "; a build with --features rivals has the laws of others"
                    };
                    return Err(Wrong(format!(
                        "unknown law {name:?}: choose from {choices}{hint}"
                    )));
                }
            };
            found.push(Self {
                name: name.to_owned(),
                who,
            });
        }
        Ok(found)
    }

    /// Returns whether it is a law of the core.
    pub(super) const fn is_ours(&self) -> bool {
        matches!(self.who, Who::Ours(_))
    }

    /// Returns a client for one worker of a run. Workers have different random numbers.
    #[cfg_attr(
        not(feature = "rivals"),
        expect(unused_variables, reason = "only rivals need the scenario and numbers")
    )]
    pub(super) fn client(&self, scenario: &Scenario, seed: u64, worker: u32) -> Box<dyn Client> {
        match &self.who {
            Who::Ours(config) => Box::new(Polite::new((**config).clone(), Timestamp::ZERO)),
            #[cfg(feature = "rivals")]
            Who::Rival => rivals::build(&self.name, scenario, seed ^ (u64::from(worker) << 32))
                .expect("a name from the rivals' own list"),
        }
    }
}

fn ours() -> impl Iterator<Item = &'static str> {
    OURS.into_iter()
        .filter(|name| name.parse::<LawConfig>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &[&str]) -> Result<Vec<String>, String> {
        let of: Vec<_> = of.iter().map(|&name| name.to_owned()).collect();
        Contender::named(&of, SimulatedProfile::Api)
            .map(|found| found.into_iter().map(|one| one.name).collect())
            .map_err(|wrong| wrong.to_string())
    }

    #[test]
    fn all_is_everybody_once() {
        let all = names(&["fixed", "all"]).unwrap();
        assert_eq!(all[0], "fixed");
        for name in RIVALS.iter().copied().chain(ours()) {
            assert_eq!(all.iter().filter(|one| *one == name).count(), 1, "{name}");
        }
    }

    #[test]
    fn an_unknown_law_is_named_with_the_choices() {
        let error = names(&["aimd", "vegass"]).unwrap_err();
        assert!(
            error.starts_with("unknown law \"vegass\": choose from "),
            "{error}"
        );
        for name in RIVALS {
            assert!(error.contains(name), "{error}");
        }
    }
}
