//! Every rival on one host, 10/s with a burst of 10 for half an hour, beside the research's figures.

use super::{NAMES, about, build};
use crate::scenario::Scenario;
use crate::{run, score};

fn scenario() -> Scenario {
    Scenario::read(
        r#"[{"name":"tb10","duration_s":1800,"demand":{"kind":"greedy","connections":64},"rtt_ms":50,
        "service":{"mean_ms":150,"cv":0.25},"limit":{"kind":"token_bucket","rate":10,"burst":10}}]"#,
    )
    .unwrap()
    .remove(0)
}

#[test]
fn table() {
    let scenario = scenario();
    for name in NAMES {
        let trace = run(&scenario, 1, false, |i| build(name, &scenario, u64::from(i)).unwrap());
        let score = score(&scenario, name, 1, &trace);
        println!("{name:14} {:6.2} {:7.3} {:?}", score.utilisation * 100.0, score.refused_share * 100.0, score.t90_s);
    }
}

#[test]
fn every_name_is_built_and_explained() {
    let scenario = scenario();
    for name in NAMES {
        assert!(build(name, &scenario, 1).is_some(), "{name}");
        assert!(about(name).is_some(), "{name}");
    }
    assert!(build("none", &scenario, 1).is_none() && about("none").is_none());
}
