//! `politely state`: check, save and restore a coordinator's folder.

use std::fmt::Write as _;

use politely_server::store::{self, ArchiveError, Found};

use crate::args::{StateArgs, StateCommand};
use crate::exit::{Exit, Wrong};

pub(crate) fn run(args: &StateArgs) -> Result<Exit, Wrong> {
    match &args.command {
        StateCommand::Check { dir } => match store::check(dir) {
            Ok(found) => {
                println!("{}: {}", dir.display(), words(&found));
                Ok(if found.keys_damaged == 0 {
                    Exit::AllFetched
                } else {
                    Exit::SomeFailed
                })
            }
            Err(why) if is_damage(&why) => {
                eprintln!("error: {why}");
                Ok(Exit::SomeFailed)
            }
            Err(why) => Err(Wrong(why.to_string())),
        },
        StateCommand::Backup { dir, file } => {
            let found = store::backup(dir, file).map_err(|why| Wrong(why.to_string()))?;
            println!("{}: {}", file.display(), words(&found));
            Ok(Exit::AllFetched)
        }
        StateCommand::Restore { dir, file } => {
            let found = store::restore(dir, file).map_err(|why| Wrong(why.to_string()))?;
            println!("{}: {}", dir.display(), words(&found));
            Ok(Exit::AllFetched)
        }
    }
}

fn is_damage(why: &ArchiveError) -> bool {
    let opened = |why: &store::OpenError| matches!(why, store::OpenError::Damaged { .. });
    match why {
        ArchiveError::Damaged { .. } => true,
        ArchiveError::Open(why) => opened(why),
        _ => false,
    }
}

fn words(found: &Found) -> String {
    let mut words = format!(
        "{} keys, {} permits out, {} starts",
        found.keys, found.permits, found.boots
    );
    if found.keys_damaged > 0 {
        let _ = write!(
            words,
            "; the states of {} keys are damaged: the next start sets them aside, and these keys begin anew",
            found.keys_damaged
        );
    }
    if found.journal_damaged > 0 {
        let _ = write!(
            words,
            "; {} damaged bytes in the journal: the next start skips them",
            found.journal_damaged
        );
    }
    words
}
