//! Tests of the state after a restart.

use politely_server::store::Store;
use politely_server::{Coordinator, Options, Server, Settings};
use tokio::sync::oneshot;

#[tokio::test(flavor = "multi_thread")]
async fn operators_numbers_holds_and_the_configuration_outlive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let http = reqwest::Client::new();
    for round in 0..3 {
        let (store, kept) = Store::open(dir.path()).unwrap();
        assert_eq!(kept.boot, round + 1);
        let coordinator = Coordinator::resume(Settings::default(), store, kept).unwrap();
        let options = Options {
            bind: "127.0.0.1:0".parse().unwrap(),
            token: None,
            certificate: None,
            frontier: None,
            grpc: None,
            commit: "unknown",
            collector: None,
        };
        let server = Server::bind(coordinator.clone(), options).await.unwrap();
        let at = |path: &str| format!("http://{}{path}", server.address());
        let [config, key] = [at("/api/v1/config"), at("/api/v1/keys/h.example")];
        let (end, ended) = oneshot::channel::<()>();
        let running = tokio::spawn(server.run(async {
            let _ = ended.await;
        }));
        let text = |request: reqwest::RequestBuilder| async {
            let request = request.header("content-type", "application/json");
            request.send().await.unwrap().text().await.unwrap()
        };
        if round == 0 {
            text(
                http.patch(&config)
                    .body(r#"{"crawling":{"rate_per_host":3.0}}"#),
            )
            .await;
            text(
                http.patch(&key)
                    .body(r#"{"rate":0.5,"in_flight":2,"hold_ms":3600000}"#),
            )
            .await;
        } else {
            assert!(
                text(http.get(&config))
                    .await
                    .contains(r#""rate_per_host":3.0"#)
            );
            let detail = text(http.get(&key)).await;
            assert!(detail.contains("hold, operator"), "{detail}");
            assert!(
                detail.contains(r#""limits":{"rate":0.5,"in_flight":2}"#),
                "{detail}"
            );
        }
        let _ = end.send(());
        running.await.unwrap();
        drop(coordinator);
    }
}
