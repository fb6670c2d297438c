//! `politely completions` and `politely man`: generated from the description of the arguments.

use clap::CommandFactory;
use clap_mangen::Man;

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::exit::{Exit, Wrong, make_folder, print};

/// Prints the completions of one shell.
pub(crate) fn print_completions(args: &CompletionsArgs) -> Result<Exit, Wrong> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "politely", &mut text);
    print(&text).map(|_| Exit::AllFetched)
}

/// Prints one page, or writes the pages of all commands into a folder.
pub(crate) fn print_pages(args: &ManArgs) -> Result<Exit, Wrong> {
    let mut cli = without_help_commands(Cli::command());
    cli.build();
    if let Some(dir) = &args.dir {
        make_folder(dir)?;
        clap_mangen::generate_to(cli, dir).map_err(|why| Wrong::file(dir, &why))?;
        return Ok(Exit::AllFetched);
    }
    let command = match &args.command {
        None => &cli,
        Some(name) => command_named(&cli, name)?,
    };
    let mut text = Vec::new();
    Man::new(command.clone())
        .render(&mut text)
        .map_err(|why| Wrong(format!("cannot write a manual page: {why}")))?;
    print(&text).map(|_| Exit::AllFetched)
}

/// Leaves out the commands `help`, whose pages would only repeat names.
fn without_help_commands(command: clap::Command) -> clap::Command {
    let names: Vec<String> = (command.get_subcommands())
        .map(|sub| sub.get_name().to_owned())
        .collect();
    let command = command.disable_help_subcommand(true);
    names.into_iter().fold(command, |command, name| {
        command.mut_subcommand(name, without_help_commands)
    })
}

/// Returns the command `name`.
fn command_named<'a>(cli: &'a clap::Command, name: &str) -> Result<&'a clap::Command, Wrong> {
    cli.find_subcommand(name).ok_or_else(|| {
        let names: Vec<&str> = cli.get_subcommands().map(clap::Command::get_name).collect();
        let names = names.join(", ");
        Wrong(format!(
            "politely has no command {name:?}; choose one of {names}"
        ))
    })
}
