//! The configuration of a run's limits, and the limiter that it shares with other processes.

use std::time::Duration;

use politely::{Clock, Config, Limiter};

use crate::config::Settings;
use crate::exit::Wrong;
use crate::{engine, token};

/// The name of an engine in messages.
pub(super) const STORE: &str = "the store";
/// The default lease with `--store`: slots of a killed process are freed after it. A longer request
/// renews its slots.
const STORE_LEASE: Duration = Duration::from_secs(20);
/// The first rest of a host that shows block pages. The second is twice as long, and then the host
/// is set aside. A person may wait for the run, so both are short.
const QUARANTINE_MIN: Duration = Duration::from_secs(30);

/// Returns the limiter of this process, for up to `capacity` keys, or the one that it shares with
/// others. The rules of a policy are not in it.
pub(crate) fn limiter(settings: &Settings, capacity: usize) -> Result<Limiter, Wrong> {
    let clock = Clock::system();
    match (&settings.coordinator, &settings.store) {
        (Some(url), _) => coordinator(settings, url, clock),
        (None, Some(url)) => store(settings, url, clock),
        (None, None) => {
            let builder = Limiter::builder().clock(clock).config(config(settings));
            let limiter = builder.capacity(capacity).build();
            limiter.map_err(|why| Wrong(why.to_string()))
        }
    }
}

/// Returns the error for a run that cannot start with the coordinator or engine, with a hint.
pub(super) fn no_beginning(shared_by: &str, why: &str) -> String {
    let hint = match shared_by {
        // The engine errors that this project knows contain their own hint.
        _ if why.contains("; ") => "",
        STORE => {
            "; start it, or correct the URL (docs/how-to/run-a-fleet.md says what it must allow)"
        }
        _ => token::advice(why),
    };
    format!("{shared_by} refuses us: {why}{hint}")
}

/// Returns the limiter of `--store`.
fn store(settings: &Settings, url: &str, clock: Clock) -> Result<Limiter, Wrong> {
    let url = token::store_url(url, settings.store_password_file.as_deref())?;
    let engine = engine::connect(&url)?;
    let mut config = config(settings);
    config.lease = settings.lease.unwrap_or(STORE_LEASE);
    let builder = Limiter::builder().config(config).clock(clock);
    let builder = builder.store(engine);
    let limiter = builder
        .when_unavailable(settings.store_unavailable.into())
        .build();
    limiter.map_err(|why| Wrong(why.to_string()))
}

/// Returns the limiter of `--coordinator`.
fn coordinator(settings: &Settings, url: &str, clock: Clock) -> Result<Limiter, Wrong> {
    let builder = Limiter::builder().clock(clock).coordinator(url);
    let builder = match &settings.client {
        Some(name) => builder.client(name.clone()),
        None => builder,
    };
    let builder = builder.labels(settings.labels.0.clone());
    let builder = builder.on_unavailable(settings.on_unavailable.into());
    let builder = match token::read(settings.token_file.as_deref())? {
        Some(token) => builder.token(token.text),
        None => builder,
    };
    let limiter = builder
        .build()
        .map_err(|why| Wrong(format!("--coordinator: {why}")))?;
    Ok(limiter)
}

/// Returns the profile's settings, overridden by the operator's numbers.
pub(super) fn config(settings: &Settings) -> Config {
    let mut config =
        settings
            .profile
            .config(settings.law, settings.numbers, settings.declared.clone());
    settings.trouble.of_key().put(&mut config);
    config.quarantine.rest_min = QUARANTINE_MIN;
    config
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use politely::core::control::{AimdConfig, LawConfig};

    use super::*;
    use crate::config::Knobs;

    #[test]
    fn the_settings_for_trouble_are_those_of_every_key() {
        let file = "law = \"aimd\"\ncut = 0.6\nbackoff = { max = \"9s\" }\n\
                    breaker = { failures = 3, open = \"2s\" }";
        let knobs: Knobs = toml::from_str(file).unwrap();
        let config = config(&Settings::checked(knobs).unwrap());
        let aimd = AimdConfig {
            cut: 0.6,
            ..AimdConfig::default()
        };
        assert_eq!(config.law, LawConfig::Aimd(Arc::new(aimd)));
        assert_eq!(config.backoff_max.as_secs(), 9);
        let breaker = config.breaker;
        assert_eq!((breaker.trip_after, breaker.rest_min.as_secs()), (3, 2));
    }
}
