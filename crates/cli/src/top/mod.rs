//! `politely top`: the coordinator's table of keys in a terminal.
//!
//! `state.rs` and `press.rs` decide what is on the screen and what each key does. `draw/` draws it.
//! `poll.rs` decides when the coordinator is called, and for what. This module connects them with
//! the terminal.

mod columns;
mod draw;
mod once;
mod paint;
mod poll;
mod press;
mod state;
#[cfg(test)]
mod state_tests;
mod words;

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, Sender};
use std::thread;

use politely_api::client::Client;
use politely_api::wire::KeysQuery;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event as Input};
use ratatui::layout::Size;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::args::TopArgs;
use crate::exit::{self, Exit, Wrong, io_words, runtime};
use crate::fault::{Fault, connect, failed};
use crate::token;

use paint::Paint;
use state::{Effect, Event, Order, State};

/// The maximum number of rows, as many as the coordinator returns at a time.
const ROWS_MAX: u32 = 1_000;

pub(crate) fn run(args: &TopArgs) -> Result<Exit, Wrong> {
    let token = token::read(args.token_file.as_deref())?;
    let client = connect(&args.coordinator, token.as_ref())?;
    let runtime = runtime(Builder::new_multi_thread().worker_threads(1))?;
    if args.once {
        return runtime.block_on(print(&client, &args.coordinator));
    }
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let what = "top needs a terminal; `politely top --once` prints the table";
        return Err(Wrong(what.to_owned()));
    }
    let broken = |why: io::Error| Wrong(format!("the terminal: {}", io_words(&why)));
    // From here on, a panic first restores the terminal.
    let mut terminal = ratatui::try_init().map_err(|why| {
        ratatui::restore();
        broken(why)
    })?;
    let ended = live(&mut terminal, &runtime, &client, &args.coordinator);
    ratatui::restore();
    runtime.shutdown_background();
    ended.map(|()| Exit::AllFetched).map_err(broken)
}

async fn print(client: &Client, place: &str) -> Result<Exit, Wrong> {
    let wrong = |why| failed(place, why);
    let fleet = client.at_each(Client::stats).await.map_err(wrong)?;
    let query = KeysQuery {
        limit: Some(ROWS_MAX),
        ..KeysQuery::default()
    };
    let page = client.at_each(|client| client.keys(&query)).await;
    let page = page.map_err(wrong)?;
    let is_read = exit::print(once::text(&fleet, &page).as_bytes())?;
    if is_read && page.matching > page.keys.len() as u32 {
        eprintln!(
            "politely: the first {} of {} keys",
            page.keys.len(),
            page.matching
        );
    }
    Ok(Exit::AllFetched)
}

/// Runs the live view until the user quits.
fn live(
    terminal: &mut DefaultTerminal,
    runtime: &Runtime,
    client: &Client,
    place: &str,
) -> io::Result<()> {
    let mut state = State::new(terminal.size()?, place.to_owned());
    let (tell, events) = mpsc::channel();
    let (want, wanted) = watch::channel(state.wanted());
    listen(&tell);
    let polling = runtime.spawn(poll::poll(client.clone(), wanted, tell.clone()));
    let ended = tell.clone();
    runtime.spawn(async move {
        // Polling ends by itself only if it panics. Without it nothing would be updated any more.
        tokio::select! { _ = polling => {} () = told_to_end() => {} }
        let _ = ended.send(Event::End);
    });
    let paint = Paint::from_env();
    terminal.draw(|frame| draw::screen(frame, &state, paint))?;
    for event in events {
        match state.on(event) {
            Some(Effect::Quit) => break,
            Some(Effect::Set(order)) => set(runtime, client.clone(), order, tell.clone()),
            None => {}
        }
        want.send_if_modified(|old| {
            let new = state.wanted();
            let differs = *old != new;
            *old = new;
            differs
        });
        terminal.draw(|frame| draw::screen(frame, &state, paint))?;
    }
    Ok(())
}

/// Sends what the user types. The thread ends with the process, because reading cannot be
/// interrupted.
fn listen(tell: &Sender<Event>) {
    let tell = tell.clone();
    thread::spawn(move || {
        loop {
            let event = match event::read() {
                Ok(Input::Key(key)) => Event::Key(key),
                Ok(Input::Resize(width, height)) => Event::Resized(Size { width, height }),
                Ok(_) => continue,
                Err(_) => Event::End,
            };
            let last = matches!(event, Event::End);
            if tell.send(event).is_err() || last {
                return;
            }
        }
    });
}

fn set(runtime: &Runtime, client: Client, order: Order, tell: Sender<Event>) {
    runtime.spawn(async move {
        let patch = |client: &Client| client.patch_key(&order.key, &order.patch);
        let done = client.at_each(patch).await;
        let done = done.map(drop).map_err(Fault::from);
        let _ = tell.send(Event::Set(order, done));
    });
}

/// Waits for the end by a service manager or a closed terminal. Ctrl-C arrives as a key.
async fn told_to_end() {
    let ends = (
        signal(SignalKind::terminate()),
        signal(SignalKind::hangup()),
    );
    let (Ok(mut terminate), Ok(mut hangup)) = ends else {
        return std::future::pending().await;
    };
    tokio::select! { _ = terminate.recv() => {} _ = hangup.recv() => {} }
}
