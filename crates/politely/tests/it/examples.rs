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

macro_rules! run {
    ($($example:ident)*) => {$(
        #[test]
        fn $example() {
            $example::main().unwrap();
        }
    )*};
}

run! { acquire observe reqwest_client reqwest_middleware several_keys tower try_acquire }

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
