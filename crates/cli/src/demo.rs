//! `politely demo`: the main job on a town of limited hosts.

use crate::args::DemoArgs;
use crate::exit::{Exit, Wrong};

pub(crate) fn run(_args: &DemoArgs) -> Result<Exit, Wrong> {
    Err(Wrong("politely demo: not built yet".to_owned()))
}
