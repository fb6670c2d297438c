//! `politely budgets reset`: makes budgets of a key whole at a coordinator.

use politely_api::client::Client;
use politely_api::wire::KeyPatch;
use tokio::runtime::Builder;

use crate::args::{BudgetsArgs, BudgetsCommand};
use crate::exit::{Exit, Wrong};
use crate::fault::{connect, failed};
use crate::log::say;
use crate::token;

pub(crate) fn run(args: &BudgetsArgs) -> Result<Exit, Wrong> {
    let BudgetsCommand::Reset { key, budget } = &args.command;
    let token = token::read(args.token_file.as_deref())?;
    let client = connect(&args.coordinator, token.as_ref())?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|why| Wrong(format!("no runtime: {why}")))?;
    let patch = KeyPatch {
        reset_budget: Some(budget.clone()),
        ..KeyPatch::default()
    };
    let call = |client: &Client| client.patch_key(key, &patch);
    let told = runtime.block_on(client.at_each(call));
    let told = told.map_err(|why| failed(&args.coordinator, why))?;
    for left in told.budgets {
        say(&format!("{key}: {} of {}", left.remaining, left.limit));
    }
    Ok(Exit::AllFetched)
}
