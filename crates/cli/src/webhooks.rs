//! The file of `politely serve --webhooks`: one table `[[webhook]]` for each.

use std::path::Path;

use politely_server::Webhook;
use serde::Deserialize;

use crate::config::in_one_line;
use crate::exit::Wrong;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    webhook: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    url: String,
    kinds: Vec<String>,
    secret: String,
}

pub(crate) fn read(path: &Path) -> Result<Vec<Webhook>, Wrong> {
    let text = std::fs::read_to_string(path).map_err(|why| Wrong::file(path, &why))?;
    let in_file = |why: &str| Wrong(format!("{}: {why}", path.display()));
    let file: File = toml::from_str(&text).map_err(|why| in_file(&in_one_line(why.message())))?;
    let webhooks = file.webhook.iter();
    let made = webhooks.map(|it| Webhook::new(&it.url, &it.kinds, &it.secret));
    let made: Result<_, _> = made.collect();
    made.map_err(|why| in_file(&why.to_string()))
}
