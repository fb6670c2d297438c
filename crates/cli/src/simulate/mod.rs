//! `politely simulate`: laws against hosts with known limits, in virtual time.
//!
//! ```text
//!   laws    the clients, by name              runs       all runs over all cores, in order
//!   table   the results, for people           pictures   the results as drawings
//! ```

mod laws;
mod pictures;
mod runs;
mod table;

use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use politely_sim::generate::{held_out, train};
use politely_sim::{Scenario, by_family, field, suite, summarise};
#[cfg(feature = "rivals")]
use politely_sim::{backoff, declared};

use self::laws::Contender;
use self::pictures::Pictures;
use self::runs::Plan;
use self::table::Widths;
use crate::args::{SimulateArgs, SimulatedProfile};
use crate::exit::{Exit, Wrong, is_read};

/// The seed of the backoff study.
#[cfg(feature = "rivals")]
const STUDY_SEED: u64 = 1;

pub(crate) fn run(args: &SimulateArgs) -> Result<Exit, Wrong> {
    if args.scenarios == "declared" {
        let study = "the study of declared limits";
        nothing_but_plot(args, study)?;
        if args.plot.is_some() {
            return Err(has_no_effect("plot", study));
        }
    }
    let pictures = args.plot.as_deref().map(Pictures::into).transpose()?;
    let told = match args.scenarios.as_str() {
        "backoff" => {
            nothing_but_plot(args, "the backoff study")?;
            study(pictures.as_ref())
        }
        "declared" => study_declared(),
        _ => simulate(args, pictures.as_ref()),
    };
    match told {
        // A reader that closed the pipe is not a failure.
        Ok(()) => Ok(Exit::AllFetched),
        Err(Stopped::Output(why)) => is_read(Err(why)).map(|_| Exit::AllFetched),
        Err(Stopped::Wrong(wrong)) => Err(wrong),
    }
}

/// Why the simulation ended early.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error(transparent)]
    Output(#[from] io::Error),
    #[error(transparent)]
    Wrong(#[from] Wrong),
}

fn simulate(args: &SimulateArgs, pictures: Option<&Pictures>) -> Result<(), Stopped> {
    let profile = args.profile.unwrap_or(SimulatedProfile::Api);
    let laws = match &args.law[..] {
        [] => Contender::named(&["discover".to_owned()], profile)?,
        laws => Contender::named(laws, profile)?,
    };
    let seeds = args.seeds.unwrap_or(1);
    let scenarios = scenarios(args)?;
    let plan = Plan {
        scenarios: &scenarios,
        laws: &laws,
        seeds,
        draw: pictures.is_some(),
    };
    let seeds = seeds as usize;
    let widths = Widths::of(&scenarios, &laws);
    let begun = Instant::now();
    let mut out = io::stdout().lock();
    if !args.json {
        writeln!(out, "{}", widths.head())?;
    }
    let (mut scores, mut effort) = (Vec::with_capacity(plan.len()), Effort::default());
    plan.each(|done| {
        effort.took += done.took;
        effort.requests += done.requests;
        if let (Some(pictures), Some(svg)) = (pictures, &done.picture) {
            pictures.timeline(&done.score, svg)?;
        }
        scores.push(done.score);
        if args.json {
            let line = scores.last().map(serde_json::to_string);
            let line = line.transpose().map_err(io::Error::from)?;
            writeln!(out, "{}", line.unwrap_or_default())?;
        } else if scores.len().is_multiple_of(seeds) {
            writeln!(out, "{}", widths.row(&scores[scores.len() - seeds..]))?;
        }
        Ok::<_, Stopped>(())
    })?;
    let summaries = summarise(&scores);
    let mut text = widths.summary(&summaries);
    text += &widths.families(&by_family(&scores));
    if args.worst > 0 {
        text += &widths.worst(&summaries, &scores, args.worst);
    }
    if args.json {
        eprint!("{text}");
    } else {
        write!(out, "\n{text}")?;
    }
    out.flush()?;
    if let Some(pictures) = pictures {
        let ours = laws.iter().filter(|law| law.is_ours());
        let ours: Vec<_> = ours.map(|law| law.name.as_str()).collect();
        pictures.field(&args.scenarios, &summaries, &ours)?;
    }
    eprintln!("{}", effort.line(begun.elapsed()));
    Ok(())
}

/// Refuses other flags with a study, which has its own laws and scenarios.
fn nothing_but_plot(args: &SimulateArgs, study: &str) -> Result<(), Wrong> {
    let given = [
        ("law", !args.law.is_empty()),
        ("profile", args.profile.is_some()),
        ("seeds", args.seeds.is_some()),
        ("only", args.only.is_some()),
        ("worst", args.worst > 0),
        ("json", args.json),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((name, _)) => Err(has_no_effect(name, study)),
        None => Ok(()),
    }
}

fn has_no_effect(flag: &str, study: &str) -> Wrong {
    Wrong(format!("--{flag} has no effect on {study}; leave it out"))
}

/// Runs clients that keep declared limits.
#[cfg(feature = "rivals")]
fn study_declared() -> Result<(), Stopped> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{:<25} {:<14} {:>7} {:>10} {:>9}",
        "limits", "client", "used %", "refused %", "requests"
    )?;
    for row in declared::study() {
        let (used, refused) = (row.used * 100.0, row.refused * 100.0);
        writeln!(
            out,
            "{:<25} {:<14} {used:>7.1} {refused:>10.2} {:>9}",
            row.limits, row.client, row.sent
        )?;
    }
    Ok(out.flush()?)
}

#[cfg(not(feature = "rivals"))]
fn study_declared() -> Result<(), Stopped> {
    Err(crate::build::without("study of declared limits", "rivals").into())
}

#[cfg(not(feature = "rivals"))]
fn study(_pictures: Option<&Pictures>) -> Result<(), Stopped> {
    Err(crate::build::without("backoff study", "rivals").into())
}

/// Runs Brooker's study, which has its own clients.
#[cfg(feature = "rivals")]
fn study(pictures: Option<&Pictures>) -> Result<(), Stopped> {
    let rows = backoff::study(STUDY_SEED);
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{:<14} {:>7} {:>9} {:>9}",
        "backoff", "clients", "calls", "time s"
    )?;
    for row in &rows {
        let backoff::Row {
            backoff,
            clients,
            calls,
            time_s,
        } = row;
        writeln!(out, "{backoff:<14} {clients:>7} {calls:>9.0} {time_s:>9.2}")?;
    }
    out.flush()?;
    if let Some(pictures) = pictures {
        pictures.study(&rows)?;
    }
    Ok(())
}

/// The time of the simulation, with scoring and drawing apart.
#[derive(Default)]
struct Effort {
    took: Duration,
    requests: u64,
}

impl Effort {
    fn line(&self, elapsed: Duration) -> String {
        let per_s = self.requests as f64 / self.took.as_secs_f64().max(1e-9);
        format!(
            "{} requests simulated, {:.2} M a second on one core; {:.1} s with scoring on all of them",
            self.requests,
            per_s / 1e6,
            elapsed.as_secs_f64(),
        )
    }
}

fn scenarios(args: &SimulateArgs) -> Result<Vec<Scenario>, Wrong> {
    let mut found = match args.scenarios.as_str() {
        "suite" => suite(),
        "train" => train(),
        "held-out" => held_out(),
        "train-field" => field::train(),
        "held-out-field" => field::held_out(),
        file => {
            let path = Path::new(file);
            let text = std::fs::read_to_string(path).map_err(|why| match why.kind() {
                io::ErrorKind::NotFound => Wrong(format!(
                    "{file}: no file, set or study of this name; use a JSON file, suite, train, \
                     held-out, train-field, held-out-field, backoff or declared"
                )),
                _ => Wrong::file(path, &why),
            })?;
            Scenario::read(&text).map_err(|why| Wrong(format!("{file}: {why}")))?
        }
    };
    if let Some(text) = &args.only {
        found.retain(|scenario| scenario.name.contains(text.as_str()));
        if found.is_empty() {
            let of = &args.scenarios;
            return Err(Wrong(format!(
                "--only {text}: no scenario of {of} has that in its name"
            )));
        }
    }
    Ok(found)
}
