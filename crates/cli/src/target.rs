//! `politely target`: hosts with known limits, from `politely-target`.

use crate::args::TargetArgs;
use crate::exit::{Exit, Wrong};

pub(crate) fn run(_args: &TargetArgs) -> Result<Exit, Wrong> {
    Err(Wrong("politely target: not built yet".to_owned()))
}
