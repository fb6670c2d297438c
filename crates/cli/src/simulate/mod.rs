//! `politely simulate`: laws against hosts with known limits, in virtual time.
//!
//! ```text
//!   laws    who limits itself, by name        runs   all of them over all cores, in order
//!   table   what came of it, for people
//! ```

mod laws;
mod runs;
mod table;

use std::io::{self, Write as _};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use politely_sim::{HELD_OUT_SEED, Scenario, Score, TRAIN_SEED, generate, suite, summarise};

use self::laws::Contender;
use self::runs::Plan;
use self::table::Widths;
use crate::args::SimulateArgs;
use crate::exit::{Exit, Wrong};

const TRAIN: usize = 200;
const HELD_OUT: usize = 800;

pub(crate) fn run(args: &SimulateArgs) -> Result<Exit, Wrong> {
    let laws = Contender::named(&args.law, args.profile)?;
    let scenarios = scenarios(args)?;
    let plan = Plan {
        scenarios: &scenarios,
        laws: &laws,
        seeds: args.seeds,
        traces: args.plot.is_some(),
    };
    let widths = Widths::of(&scenarios, &laws);
    let begun = Instant::now();
    let mut out = io::stdout().lock();
    let (mut scores, mut effort) = (Vec::with_capacity(plan.len()), Effort::default());
    let mut told = if args.json {
        Ok(())
    } else {
        writeln!(out, "{}", widths.head())
    };
    plan.each(|index, done| {
        effort.took += done.took;
        effort.requests += done.requests;
        scores.push(done.score);
        let last_seed = (index + 1).is_multiple_of(args.seeds as usize);
        if told.is_ok() {
            told = if args.json {
                json(&scores[index]).and_then(|line| writeln!(out, "{line}"))
            } else if last_seed {
                writeln!(
                    out,
                    "{}",
                    widths.row(&scores[index + 1 - args.seeds as usize..])
                )
            } else {
                Ok(())
            };
        }
        match told {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    });
    let told = told.and_then(|()| {
        let summaries = summarise(&scores);
        let mut text = widths.summary(&summaries);
        if args.worst > 0 {
            text += &widths.worst(&summaries, &scores, args.worst);
        }
        if args.json {
            eprint!("{text}");
        } else {
            write!(out, "\n{text}")?;
        }
        out.flush()
    });
    match told {
        // A reader that has seen enough is no failure.
        Err(why) if why.kind() != io::ErrorKind::BrokenPipe => {
            return Err(Wrong::file(Path::new("standard output"), &why));
        }
        _ => {}
    }
    eprintln!("{}", effort.line(begun.elapsed()));
    Ok(Exit::AllFetched)
}

/// What the simulation took.
#[derive(Default)]
struct Effort {
    took: Duration,
    requests: u64,
}

impl Effort {
    fn line(&self, elapsed: Duration) -> String {
        let per_s = self.requests as f64 / self.took.as_secs_f64().max(1e-9);
        format!(
            "{} requests simulated in {:.1} s: {:.2} M a second on one core ({:.1} s with scoring)",
            self.requests,
            self.took.as_secs_f64(),
            per_s / 1e6,
            elapsed.as_secs_f64(),
        )
    }
}

fn json(score: &Score) -> io::Result<String> {
    serde_json::to_string(score).map_err(io::Error::other)
}

fn scenarios(args: &SimulateArgs) -> Result<Vec<Scenario>, Wrong> {
    let mut found = match args.scenarios.as_str() {
        "suite" => suite(),
        "train" => generate(TRAIN_SEED, TRAIN),
        "held-out" => generate(HELD_OUT_SEED, HELD_OUT),
        file => {
            let path = Path::new(file);
            let text = std::fs::read_to_string(path).map_err(|why| Wrong::file(path, &why))?;
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
