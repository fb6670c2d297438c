//! Tests that run every example as it stands; the example's own assertions are the test. The
//! examples are modules here, so that nothing is built twice.

#[path = "../../examples/acquire.rs"]
mod acquire;
#[path = "../../examples/observe.rs"]
mod observe;
#[path = "../../examples/reqwest_client.rs"]
mod reqwest_client;
#[path = "../../examples/reqwest_middleware.rs"]
mod reqwest_middleware;
#[path = "../../examples/several_keys.rs"]
mod several_keys;
#[path = "../../examples/tower.rs"]
mod tower;
#[path = "../../examples/try_acquire.rs"]
mod try_acquire;
#[allow(dead_code, reason = "its arguments would be those of this test")]
#[path = "../../examples/tutorial.rs"]
mod tutorial;

use politely_target::{HostSpec, LimitSpec, Target, Town};

macro_rules! run {
    ($($example:ident)*) => {$(
        #[test]
        fn $example() {
            $example::main().unwrap();
        }
    )*};
}

run! { acquire observe reqwest_client reqwest_middleware several_keys tower try_acquire }

#[tokio::test]
async fn the_tutorial_has_its_program_and_the_program_runs() {
    let page = include_str!("../../../../docs/tutorial/rust.md");
    let program = include_str!("../../examples/tutorial.rs");
    assert!(page.contains(&format!("```rust\n{program}```\n")));
    let host = HostSpec::new("shop", LimitSpec::None {});
    let target = Target::start(Town::new(vec![host])).await.unwrap();
    let urls = target.hosts()[0].page_urls().take(2);
    tutorial::fetch(urls).await.unwrap();
    assert_eq!(target.shutdown().hosts[0].pages, 2);
}

#[test]
fn all_are_run() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let run = include_str!("examples.rs");
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(run.contains(&format!("examples/{name}\"")), "{name}");
        }
    }
}
