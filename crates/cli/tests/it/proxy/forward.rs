//! The forward proxy: plain URLs, CONNECT, and a client of another language.

use std::process::Command;

use politely_testkit::repository;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::host::Host;
use super::{Proxy, raw, through};

#[tokio::test]
async fn a_plain_url_is_requested_and_both_sides_see_the_proxy() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &["--allow-private"]);
    let client = through(&proxy.url);
    let answer = client.get(format!("{}/page?x=%20", host.url)).send().await;
    let answer = answer.unwrap();
    assert_eq!(answer.headers()["via"], "1.1 politely");
    assert_eq!(answer.headers()["politely-key"], host.address());
    assert_eq!(answer.text().await.unwrap(), "GET /page?x=%20");
    let (_, head) = host.heads().remove(0);
    assert_eq!(
        (&head["host"], &head["via"]),
        (
            &http::HeaderValue::from_str(host.address()).unwrap(),
            &http::HeaderValue::from_static("1.1 politely")
        )
    );
}

#[tokio::test]
async fn a_tunnel_passes_bytes_and_holds_a_slot_until_it_ends() {
    let host = Host::start().await;
    let proxy = Proxy::of(
        &host,
        &["--allow-private", "--in-flight", "1", "--wait", "0"],
    );
    let connect = format!("CONNECT {0} HTTP/1.1\r\nhost: {0}\r\n\r\n", host.address());
    let inner = "GET /inside HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let open = raw(proxy.address(), &format!("{connect}{inner}")).await;
    assert!(open.starts_with("HTTP/1.1 200 OK\r\n"), "{open}");
    assert!(open.ends_with("GET /inside"), "{open}");
    // The slot of the first tunnel is free, and a second one is refused while this one is open.
    let mut held = tokio::net::TcpStream::connect(proxy.address())
        .await
        .unwrap();
    held.write_all(connect.as_bytes()).await.unwrap();
    let mut first = [0; 15];
    held.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    let host = format!("host: {}\r\nconnection: close\r\n\r\n", host.address());
    let first = connect.lines().next().unwrap();
    let refused = raw(proxy.address(), &format!("{first}\r\n{host}")).await;
    assert!(refused.starts_with("HTTP/1.1 429 "), "{refused}");
    assert!(refused.contains("in flight"), "{refused}");
}

#[tokio::test]
async fn a_tunnel_to_nowhere_is_a_502() {
    let free = politely_testkit::process::free_place();
    let proxy = Proxy::start(&["--allow-private", "--profile", "api"]);
    let connect = format!("CONNECT {free} HTTP/1.1\r\nhost: {free}\r\nconnection: close\r\n\r\n");
    let answer = raw(proxy.address(), &connect).await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(answer.contains("no connection to the host"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_goes_through_it_by_its_environment() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &["--allow-private"]);
    let script = "import sys, requests, urllib.request as u\n\
                  url = sys.argv[1]\n\
                  print(requests.get(url + '/requests').text)\n\
                  print(requests.post(url + '/echo', data='posted').text)\n\
                  print(u.urlopen(url + '/urllib').read().decode())";
    let python = repository().join(".venv/bin/python");
    let url = host.url.clone();
    let output = tokio::task::spawn_blocking(move || {
        Command::new(python)
            .args(["-c", script, &url])
            .env("http_proxy", &proxy.url)
            .env("no_proxy", "")
            .output()
    });
    let output = output.await.unwrap().expect("python: run scripts/setup");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "GET /requests\nposted\nGET /urllib\n", "{output:?}");
    let heads = host.heads();
    assert!(heads.iter().all(|(_, head)| head["via"] == "1.1 politely"));
}
