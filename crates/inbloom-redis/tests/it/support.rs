//! What the tests share.

use inbloom::{Kind, Plan};
use inbloom_redis::{Client, Options};
use inbloom_testing::redis::Redis;

/// Starts a server of its own for a test, or reports a skip.
pub fn server() -> Option<Redis> {
    Redis::start("redis-server", &[])
}

/// Connects with the default options.
pub fn connect(address: &str) -> Client {
    connect_with(address, Options::default())
}

/// Connects.
pub fn connect_with(address: &str, options: Options) -> Client {
    let server = address.parse().expect("an address");
    Client::connect(&server, options).unwrap_or_else(|error| panic!("{address}: {error}"))
}

/// Returns a plan of kind blocked.
pub fn plan(items: u64, rate: f64) -> Plan {
    Plan::builder(Kind::Blocked).items(items).rate(rate).build().expect("a plan")
}
