//! Fetches the pages of the command line, each host at its own pace.

use std::error::Error;

use politely::Limiter;

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    fetch(std::env::args().skip(1)).await
}

pub(crate) async fn fetch(urls: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let client = politely::middleware::client(Limiter::builder().build()?)?;
    for url in urls {
        let page = client.get(&url).send().await?.text().await?;
        println!("{url}: {} bytes", page.len());
    }
    Ok(())
}
