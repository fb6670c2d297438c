//! Tokens, private addresses, and secrets.

use std::process::Command;

use super::host::Host;
use super::{Proxy, client, through};
use crate::run::{politely, run, write_secret};

const TOKEN: &str = "0123456789abcdef";

#[test]
fn an_address_that_others_reach_needs_a_token() {
    let said = run(politely().args(["proxy", "--listen", "0.0.0.0:0"]));
    assert_eq!(said.code, 2);
    let told = "0.0.0.0:0 can be reached from other machines: that needs --token-file FILE";
    assert!(said.err.contains(told), "{}", said.err);
}

#[tokio::test]
async fn a_token_opens_the_gateway_the_forward_proxy_and_tunnels() {
    let host = Host::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    write_secret(
        &file,
        &format!("worker ci {TOKEN}\nread grafana aaaaaaaaaaaaaaaa\n"),
    );
    let args = ["--allow-private", "--token-file", file.to_str().unwrap()];
    let proxy = Proxy::of(&host, &args);
    let get = |token: &str| {
        let request = client().get(proxy.at("/page"));
        request.header("x-politely-token", token).send()
    };
    assert_eq!(get(TOKEN).await.unwrap().status(), 200);
    for wrong in ["aaaaaaaaaaaaaaaa", "0123456789abcdee", ""] {
        let answer = get(wrong).await.unwrap();
        assert_eq!(answer.status(), 401);
        assert!(answer.headers().contains_key("www-authenticate"));
    }
    let page = format!("{}/page", host.url);
    for (login, status) in [(format!("me:{TOKEN}@"), 200), (String::new(), 407)] {
        let url = proxy.url.replace("http://", &format!("http://{login}"));
        let answer = through(&url).get(&page).send().await.unwrap();
        assert_eq!(answer.status(), status);
        let asks = answer.headers().contains_key("proxy-authenticate");
        assert_eq!(asks, status == 407);
    }
    let connect = format!(
        "CONNECT {0} HTTP/1.1\r\nHost: {0}\r\nConnection: close\r\n",
        host.address()
    );
    let refused = proxy.raw(&format!("{connect}\r\n")).await;
    assert!(refused.starts_with("HTTP/1.1 407 "), "{refused}");
    let inner = "GET /inside HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let login = format!("Proxy-Authorization: Bearer {TOKEN}\r\n\r\n");
    let opened = proxy.raw(&format!("{connect}{login}{inner}")).await;
    assert!(opened.ends_with("GET /inside"), "{opened}");
    for (_, head) in host.heads() {
        assert!(!format!("{head:?}").contains(TOKEN), "{head:?}");
    }
    assert!(!proxy.server.talk().contains(TOKEN));
}

#[tokio::test]
async fn a_private_address_is_refused_under_each_of_its_names() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &[]);
    let port = host.address().rsplit(':').next().unwrap();
    let hosts = [
        "127.0.0.1",
        "localhost",
        "2130706433",
        "0x7f.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
    ];
    for name in hosts {
        let request = |first: &str| {
            format!("{first} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        };
        for first in [
            format!("GET http://{name}:{port}/page"),
            format!("GET /http://{name}:{port}/page"),
            format!("CONNECT {name}:{port}"),
        ] {
            let answer = proxy.raw(&request(&first)).await;
            assert!(answer.starts_with("HTTP/1.1 403 "), "{first}: {answer}");
            assert!(answer.contains("is a private address"), "{first}: {answer}");
        }
    }
    for metadata in [
        "169.254.169.254",
        "100.100.100.200",
        "[fd00:ec2::254]",
        "10.0.0.1",
    ] {
        let request = format!(
            "GET http://{metadata}/latest/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        );
        let answer = proxy.raw(&request).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{metadata}: {answer}");
    }
    assert!(host.heads().is_empty());
    let declared = client().get(proxy.at("/page")).send().await.unwrap();
    assert_eq!(
        declared.status(),
        200,
        "a route is allowed by its declaration"
    );
}

#[tokio::test]
async fn a_web_page_whose_name_means_this_machine_is_refused() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &["--allow-private"]);
    for (name, status) in [
        ("evil.example", 421),
        ("localhost:1", 200),
        ("[::1]:7078", 200),
    ] {
        let answer = client().get(proxy.at("/page")).header("host", name);
        assert_eq!(answer.send().await.unwrap().status(), status, "{name}");
    }
}

#[tokio::test]
async fn a_login_in_a_url_is_refused_and_told_nowhere() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &["--allow-private"]);
    let url = host.url.replace("http://", "http://me:s3cret@");
    for first in [format!("GET {url}/page"), format!("GET /{url}/page")] {
        let request = format!("{first} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
        let answer = proxy.raw(&request).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert!(!answer.contains("s3cret"), "{answer}");
    }
    let mut command: Command = politely();
    let said = run(command.args(["proxy", "--route", "a=https://me:s3cret@a.example"]));
    assert_eq!(said.code, 2);
    assert!(!said.err.contains("s3cret"), "{}", said.err);
}

#[test]
fn routes_and_settings_that_mean_nothing_are_refused_in_one_line() {
    for (args, told) in [
        (&["--route", "a"][..], "write a route as NAME=URL"),
        (&["--route", "a/b=https://x"], "a route's name has"),
        (&["--route", "a=ftp://x"], "use http:// or https://"),
        (&["--route", "a=https://x?y"], "without a login and a query"),
        (
            &["--route", "a=http://x", "--route", "a=http://y"],
            "given twice",
        ),
        (&["--wait", "-1s"], "invalid value '-1s' for '--wait"),
        (&["--preset", "nothing"], "no preset `nothing`"),
        (
            &["--coordinator", "http://127.0.0.1:1", "--rate", "1"],
            "--rate cannot be combined",
        ),
        (&["--labels", "a=b"], "only with --coordinator or --policy"),
        (&["--policy", "missing.toml"], "missing.toml: no such file"),
    ] {
        let said = run(politely().arg("proxy").args(args));
        assert_eq!(said.code, 2, "{args:?}: {}", said.err);
        assert!(said.err.contains(told), "{args:?}: {}", said.err);
    }
}

#[tokio::test]
async fn a_web_page_cannot_use_the_gateway_but_its_browser_the_forward_proxy() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &["--allow-private"]);
    let whole = format!("{}/{}/page", proxy.url, host.url);
    for (field, value, status) in [
        ("origin", "http://evil.example", 403),
        ("origin", "null", 403),
        ("origin", &proxy.url, 200),
        ("sec-fetch-site", "cross-site", 403),
        ("sec-fetch-site", "same-site", 403),
        ("sec-fetch-site", "same-origin", 200),
        ("sec-fetch-dest", "document", 403),
        ("sec-fetch-dest", "iframe", 403),
        ("sec-fetch-dest", "empty", 200),
    ] {
        for url in [&proxy.at("/page"), &whole] {
            let answer = client().get(url).header(field, value).send().await;
            assert_eq!(answer.unwrap().status(), status, "{field}: {value}");
        }
        let forward = through(&proxy.url).get(format!("{}/page", host.url));
        let forward = forward.header(field, value).send().await.unwrap();
        assert_eq!(forward.status(), 200, "{field}: {value}");
    }
}

#[tokio::test]
async fn a_request_names_one_host() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &[]);
    for (version, hosts, status) in [
        ("1.1", "", 400),
        ("1.1", "Host: 127.0.0.1\r\nHost: evil.example\r\n", 400),
        ("1.1", "Host: evil example\r\n", 400),
        ("1.1", "Host: me@127.0.0.1\r\n", 400),
        ("1.1", "Host:\r\n", 400),
        ("1.1", "Host: evil.example\r\n", 421),
        ("1.1", "Host: 127.0.0.1\r\n", 200),
        ("1.0", "", 200),
    ] {
        let head = format!("GET /host/page HTTP/{version}\r\nConnection: close\r\n{hosts}\r\n");
        let answer = proxy.raw(&head).await;
        let told = format!("HTTP/{version} {status} ");
        assert!(answer.starts_with(&told), "{hosts:?}: {answer}");
    }
}
