//! `politely budgets reset`: makes budgets of a key whole at a coordinator.

use politely_api::client::Client;
use politely_api::wire::KeyPatch;

use crate::args::{BudgetsArgs, BudgetsCommand};
use crate::exit::{Exit, Wrong};
use crate::fault::{failed, reach};
use crate::log::say;

pub(crate) fn run(args: &BudgetsArgs) -> Result<Exit, Wrong> {
    let BudgetsCommand::Reset { key, budget } = &args.command;
    let (client, runtime) = reach(&args.to)?;
    let patch = KeyPatch {
        reset_budget: Some(budget.clone()),
        ..KeyPatch::default()
    };
    let call = |client: &Client| client.patch_key(key, &patch);
    let told = runtime.block_on(client.at_each(call));
    let told = told.map_err(|why| failed(&args.to.coordinator, why))?;
    for left in told.budgets {
        say(&format!("{key}: {} of {}", left.remaining, left.limit));
    }
    Ok(Exit::AllFetched)
}
