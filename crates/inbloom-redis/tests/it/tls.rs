//! Servers behind TLS, alone and as a cluster.

use std::fs;
use std::net::TcpListener;

use inbloom_redis::{Added, Client, Error, Options, RedisFilter};

use crate::support::{cluster_of_one, connect_with, plan};

#[test]
fn servers_are_reached_through_tls_and_only_if_they_are_trusted() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let names = ["localhost", "127.0.0.1"].map(str::to_owned);
    let own = rcgen::generate_simple_self_signed(names).expect("a certificate");
    fs::write(path("cert.pem"), own.cert.pem()).expect("written");
    fs::write(path("key.pem"), own.signing_key.serialize_pem()).expect("written");
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let port = free.expect("a port").port().to_string();
    let (certificate, key) = (path("cert.pem"), path("key.pem"));
    let arguments = ["--tls-port", &port, "--tls-cert-file", &certificate, "--tls-key-file", &key];
    // Asked through TLS, a node of such a cluster says its TLS port.
    let more = ["--tls-cluster", "yes", "--tls-ca-cert-file", &certificate];
    let arguments = [&arguments[..], &more, &["--tls-auth-clients", "no"]].concat();
    let Some(_node) = cluster_of_one(&arguments) else { return };

    let address = format!("rediss://localhost:{port}");
    let mut options = Options::default();
    options.root_certificate = Some(own.cert.pem().into_bytes());
    let client = connect_with(&address, options.clone());
    assert!(client.is_cluster());
    let filter = RedisFilter::create(&client, "f", plan(3_000_000, 0.01)).expect("created");
    assert_eq!(filter.insert("x").expect("inserted"), Added::New);
    assert!(filter.contains("x").expect("answered"));
    assert_eq!(RedisFilter::names(&client).expect("listed"), [b"f"]);

    let connect = |options| Client::connect(&address.parse().expect("an address"), options);
    let error = connect(Options::default()).expect_err("the system does not trust it");
    assert!(error.to_string().contains("ertificate"), "{error}");
    options.root_certificate = Some(b"no certificate".to_vec());
    let error = connect(options).expect_err("no certificate");
    assert!(!matches!(error, Error::Missing { .. }), "{error}");
}
