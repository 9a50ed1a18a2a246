//! What the tests share.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

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

/// Starts a cluster of one node, with further arguments.
pub fn cluster_of_one(arguments: &[&str]) -> Option<Redis> {
    let bus = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port");
    let bus = bus.port().to_string();
    let all = [&["--cluster-enabled", "yes", "--cluster-port", &bus], arguments].concat();
    let node = Redis::start("redis-server", &all)?;
    node.ask(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    while !node.ask(&["CLUSTER", "INFO"]).text().contains("cluster_state:ok") {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Some(node)
}

/// What a command is answered with instead of what the server says.
pub type Answer = fn(&[Vec<u8>]) -> Option<&'static str>;

/// Stands between clients and a server, and answers some commands itself: as servers do that cannot be
/// had here. Returns its address.
pub fn in_front_of(server: &Redis, answer: Answer) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("redis://{}", listener.local_addr().expect("an address"));
    let port = server.port();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect(("127.0.0.1", port)).expect("connected");
            // It ends when one of both is gone.
            std::thread::spawn(move || drop(relay(client, server, answer)));
        }
    });
    address
}

fn relay(client: TcpStream, server: TcpStream, answer: Answer) -> io::Result<()> {
    let (mut requests, mut replies) = (BufReader::new(client), BufReader::new(server));
    loop {
        let mut request = Vec::new();
        let arguments = copy_value(&mut requests, &mut request)?;
        let reply = match answer(&arguments) {
            Some(reply) => reply.as_bytes().to_vec(),
            None => {
                replies.get_mut().write_all(&request)?;
                let mut reply = Vec::new();
                copy_value(&mut replies, &mut reply)?;
                reply
            }
        };
        requests.get_mut().write_all(&reply)?;
    }
}

/// Copies a request or a reply, and returns the strings in it.
fn copy_value(from: &mut impl BufRead, to: &mut Vec<u8>) -> io::Result<Vec<Vec<u8>>> {
    let begin = to.len();
    if from.read_until(b'\n', to)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let line = String::from_utf8_lossy(&to[begin..]).trim_end().to_owned();
    let count = line.get(1..).and_then(|count| count.parse::<usize>().ok());
    match (line.as_bytes()[0], count) {
        (b'*', Some(count)) => {
            let mut strings = Vec::new();
            for _ in 0..count {
                strings.append(&mut copy_value(from, to)?);
            }
            Ok(strings)
        }
        (b'$', Some(length)) => {
            let start = to.len();
            from.take(length as u64 + 2).read_to_end(to)?;
            Ok(vec![to[start..start + length].to_vec()])
        }
        _ => Ok(Vec::new()),
    }
}

/// Returns a plan of kind blocked.
pub fn plan(items: u64, rate: f64) -> Plan {
    Plan::builder(Kind::Blocked).items(items).rate(rate).build().expect("a plan")
}
