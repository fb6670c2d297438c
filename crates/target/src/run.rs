//! The command `politely target`: serves a town until it is stopped, then prints the judge's table.

use std::future::Future;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use crate::judge::Report;
use crate::log::Record;
use crate::server::{Target, TargetError};
use crate::town::Town;

/// The options of the command. `None` keeps the value of the town.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Args {
    /// `demo`, `full`, or a JSON file; empty means `full`.
    pub town: String,
    /// The first host's address.
    pub bind: Option<Ipv4Addr>,
    /// The port of all hosts.
    pub port: Option<u16>,
    /// A file for one JSON line per request.
    pub log: Option<PathBuf>,
    /// Writes the report as JSON instead of a table.
    pub json: bool,
}

/// Starts the town, writes each host's URL and limit to `talk`, waits for `stop` (Ctrl-C), writes
/// the report to `data` and returns it.
pub async fn run(
    args: Args,
    data: &mut (dyn Write + Send),
    talk: &mut (dyn Write + Send),
    stop: impl Future<Output = ()> + Send,
) -> Result<Report, TargetError> {
    let mut town = if args.town.is_empty() {
        Town::full()
    } else {
        Town::named(&args.town)?
    };
    town.bind = args.bind.unwrap_or(town.bind);
    town.port = args.port.unwrap_or(town.port);
    let limits: Vec<String> = town
        .hosts
        .iter()
        .map(|host| host.limit.to_string())
        .collect();
    let target = Target::start_with(town, args.log.map_or(Record::Counters, Record::File)).await?;
    for (host, limit) in target.hosts().iter().zip(limits) {
        writeln!(
            talk,
            "{:28} {:20} {:4} pages, {limit}",
            host.url(),
            host.name,
            host.pages
        )?;
    }
    talk.flush()?;
    stop.await;
    let report = target.shutdown();
    if args.json {
        serde_json::to_writer_pretty(&mut *data, &report).map_err(std::io::Error::from)?;
        writeln!(data)?;
    } else {
        write!(data, "{report}")?;
    }
    data.flush()?;
    Ok(report)
}
