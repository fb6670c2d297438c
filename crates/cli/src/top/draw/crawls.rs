//! The crawls of the frontier with their domains and backlog, and the owners of the chosen one.

use politely_api::wire::{FrontierCounts, FrontierOwner};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, Table};

use super::super::columns::GAP;
use super::super::paint::{CURSOR, STRONG};
use super::super::poll::CrawlsSeen;
use super::super::state::State;
use super::super::words;

const CRAWLS: [&str; 6] = ["crawl", "domains", "ready", "dated", "leased", "finished"];
const OWNERS: [&str; 4] = ["owner", "domain", "pages", "lease"];
/// The width of a column of numbers, enough for `100,000,000`.
const NUMBER: u16 = 11;
/// The least width of a column of names.
const NAME: u16 = 12;

pub(super) fn draw(frame: &mut Frame, area: Rect, state: &State) {
    let Some(crawls) = &state.crawls else { return };
    match &crawls.seen {
        None => frame.render_widget("asking …", area),
        Some(None) => frame.render_widget("this coordinator has no frontier", area),
        Some(Some(seen)) if seen.crawls.is_empty() => {
            frame.render_widget("no page was added to a crawl yet", area);
        }
        Some(Some(seen)) => tables(frame, area, seen, crawls.at()),
    }
}

fn tables(frame: &mut Frame, area: Rect, seen: &CrawlsSeen, at: usize) {
    // The owners get half of the screen, or what the crawls leave free.
    let titles = 1;
    let wanted = seen.crawls.len() as u16 + titles;
    let high = wanted.min((area.height / 2).max(titles + 1));
    let parts = [
        Constraint::Length(high),
        Constraint::Length(1),
        Constraint::Min(0),
    ];
    let [top, _, below] = Layout::vertical(parts).areas(area);
    let rows = usize::from(high.saturating_sub(titles)).max(1);
    let first = (at + 1).saturating_sub(rows);
    let drawn = seen.crawls.iter().enumerate().skip(first).take(rows);
    let drawn = drawn.map(|(place, crawl)| {
        let row = Row::new(crawl_cells(crawl));
        if place == at { row.style(CURSOR) } else { row }
    });
    let widths = [Constraint::Min(NAME)]
        .into_iter()
        .chain([Constraint::Length(NUMBER); 5]);
    let numbers = [false, true, true, true, true, true];
    frame.render_widget(table(drawn, widths, heads(CRAWLS, numbers)), top);

    let drawn = seen.owners.iter().map(|owner| Row::new(owner_cells(owner)));
    let widths = [
        Constraint::Min(NAME),
        Constraint::Min(NAME),
        Constraint::Length(NUMBER),
        Constraint::Length(NUMBER),
    ];
    let numbers = [false, false, true, true];
    frame.render_widget(table(drawn, widths, heads(OWNERS, numbers)), below);
}

fn crawl_cells<'a>(crawl: &FrontierCounts) -> [Cell<'a>; 6] {
    let paused = if crawl.paused { " (paused)" } else { "" };
    [
        words::harmless(&format!("{}{paused}", crawl.crawl)).into(),
        number(words::count(crawl.domains)),
        number(words::count(crawl.ready)),
        number(words::count(crawl.dated)),
        number(words::count(crawl.leased)),
        number(words::count(crawl.finished)),
    ]
}

fn owner_cells<'a>(owner: &FrontierOwner) -> [Cell<'a>; 4] {
    let client = owner.client.as_deref().unwrap_or("–");
    [
        words::harmless(client).into(),
        words::harmless(&owner.domain).into(),
        number(words::count(owner.pages.into())),
        number(words::duration(owner.lease_ms)),
    ]
}

fn heads<const N: usize>(titles: [&str; N], numbers: [bool; N]) -> Row<'_> {
    let titles = titles.into_iter().zip(numbers);
    Row::new(titles.map(|(title, is_number)| {
        if is_number {
            number(title.to_owned())
        } else {
            title.into()
        }
    }))
    .style(STRONG)
}

fn table<'a>(
    rows: impl Iterator<Item = Row<'a>>,
    widths: impl IntoIterator<Item = Constraint>,
    heads: Row<'a>,
) -> Table<'a> {
    Table::new(rows, widths).header(heads).column_spacing(GAP)
}

fn number<'a>(text: String) -> Cell<'a> {
    Line::from(text).right_aligned().into()
}
