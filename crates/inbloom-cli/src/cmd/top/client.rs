//! What is asked of the server, and how: a few GETs of its JSON API.
//!
//! Each is a connection and a request of HTTP/1.0, which no server answers in chunks: the answer is a head, an
//! empty line, and everything up to the end.

use std::fmt::{self, Display, Write as _};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Result, bail};
use inbloom_server::http::names::{STANDARD, base64_encode, percent_encode};
use serde_json::Value;

use crate::login::Login;
use crate::output::problem;

/// The longest wait for each step of an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of an answer: names of a list may have a megabyte.
const LONGEST: u64 = 16 << 20;

/// What a list is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    Name,
    Keys,
    Capacity,
    Used,
    Memory,
}

impl Sort {
    pub fn name(self) -> &'static str {
        match self {
            Sort::Name => "name",
            Sort::Keys => "keys",
            Sort::Capacity => "capacity",
            Sort::Used => "used",
            Sort::Memory => "memory",
        }
    }

    /// Numbers are sorted the largest first, names from A to Z.
    pub fn usual_order(self) -> Order {
        if self == Sort::Name { Order::Ascending } else { Order::Descending }
    }
}

/// The direction of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Ascending,
    Descending,
}

impl Order {
    pub fn reversed(self) -> Order {
        match self {
            Order::Ascending => Order::Descending,
            Order::Descending => Order::Ascending,
        }
    }
}

/// How far back the history of a filter is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    Quarter,
    Day,
}

/// Which screen is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Screen {
    List,
    /// The filter with this path, in the API's spelling.
    Filter(String),
    Health,
}

/// What somebody looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    pub screen: Screen,
    pub database: u8,
    pub search: String,
    pub sort: Sort,
    pub order: Order,
    pub offset: usize,
    pub rows: usize,
    pub reach: Reach,
}

impl Look {
    pub fn list(database: u8, search: &str, sort: Sort, rows: usize) -> Look {
        Look {
            screen: Screen::List,
            database,
            search: search.to_owned(),
            sort,
            order: sort.usual_order(),
            offset: 0,
            rows,
            reach: Reach::Quarter,
        }
    }

    /// Asks for as many rows as a terminal of this height shows.
    pub fn fit(&mut self, height: usize) {
        self.rows = height.saturating_sub(super::screen::AROUND_LIST).clamp(1, 1000);
    }
}

/// What the server answered to a look.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub look: Look,
    pub health: Value,
    /// The list, or the filter with its history.
    pub shown: Value,
    pub history: Value,
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub struct Failure {
    pub message: String,
    /// Whether asking again is pointless: no password, a wrong address.
    pub is_final: bool,
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        let message = match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                "connection refused: check that a server was started with this --http address"
                    .to_owned()
            }
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("no reply within {} s", PATIENCE.as_secs())
            }
            _ => error.to_string(),
        };
        Failure { message, is_final: false }
    }
}

/// A server's API.
pub struct Client {
    address: String,
    authorization: String,
}

impl Client {
    pub fn new(address: &str, login: Option<Login>) -> Result<Client> {
        if address.starts_with("https://") {
            bail!(problem(
                format!("{address}: top does not speak TLS"),
                "use a tunnel to the --http address"
            ));
        }
        let address = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
        let authorization = login.map_or(String::new(), |Login { user, password }| {
            let user = user.unwrap_or_default();
            let both = base64_encode(format!("{user}:{password}").as_bytes(), STANDARD);
            format!("Authorization: Basic {both}\r\n")
        });
        Ok(Client { address: address.to_owned(), authorization })
    }

    /// Everything that a look needs.
    pub fn fetch(&self, look: &Look) -> std::result::Result<Snapshot, Failure> {
        let health = self.get("/api/health")?;
        let (mut shown, mut history) = (Value::Null, Value::Null);
        match &look.screen {
            Screen::List => shown = self.get(&list_path(look))?,
            Screen::Filter(path) => {
                let span = match look.reach {
                    Reach::Quarter => "15m",
                    Reach::Day => "24h",
                };
                let filter = format!("/api/filters/{path}");
                let database = look.database;
                shown = self.get(&format!("{filter}?db={database}"))?;
                history = self.get(&format!("{filter}/history?db={database}&span={span}"))?;
            }
            Screen::Health => {}
        }
        Ok(Snapshot { look: look.clone(), health, shown, history })
    }

    fn get(&self, path: &str) -> std::result::Result<Value, Failure> {
        let address = self.address.to_socket_addrs().map_err(|error| Failure {
            message: format!("not an address like 127.0.0.1:7380: {error}"),
            is_final: true,
        })?;
        let mut socket = Err(io::Error::from(io::ErrorKind::NotFound));
        for address in address {
            socket = TcpStream::connect_timeout(&address, PATIENCE);
            if socket.is_ok() {
                break;
            }
        }
        let mut socket = socket?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let Client { address, authorization } = self;
        let request = format!(
            "GET {path} HTTP/1.0\r\nHost: {address}\r\nX-Inbloom: 1\r\n{authorization}\r\n"
        );
        socket.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        socket.take(LONGEST).read_to_end(&mut answer)?;
        read(&answer)
    }
}

fn list_path(look: &Look) -> String {
    let order = match look.order {
        Order::Ascending => "asc",
        Order::Descending => "desc",
    };
    let mut path = format!(
        "/api/filters?db={}&sort={}&order={order}&limit={}&offset={}&watch=1",
        look.database,
        look.sort.name(),
        look.rows,
        look.offset
    );
    if !look.search.is_empty() {
        let search = percent_encode(look.search.as_bytes());
        write!(path, "&q={search}").expect("memory takes any text");
    }
    path
}

/// The JSON of an answer, or why there is none.
fn read(answer: &[u8]) -> std::result::Result<Value, Failure> {
    let failure = |message: &str, is_final| Err(Failure { message: message.to_owned(), is_final });
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let Some(end) = end.filter(|_| answer.starts_with(b"HTTP/1.")) else {
        return failure("not an HTTP server: name the --http address of an inbloom server", true);
    };
    let head = String::from_utf8_lossy(&answer[..end]);
    let status: u16 = head.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or(0);
    let body: Option<Value> = serde_json::from_slice(&answer[end + 4..]).ok();
    let code = body.as_ref().map_or("", |body| body["error"]["code"].as_str().unwrap_or(""));
    match (status, body.as_ref()) {
        (200, Some(body)) => Ok(body.clone()),
        (401, _) => failure(
            "login failed: pass --user and --password-file, or set INBLOOM_USER and \
             INBLOOM_PASSWORD",
            true,
        ),
        (_, Some(body)) if body["error"].is_object() => {
            let message = body["error"]["message"].as_str().unwrap_or(code);
            // A filter that is gone, and a server that loads or is busy, are no reason to end.
            failure(message, !matches!(status, 404 | 409) && status < 500)
        }
        _ => failure("not an inbloom server: name the --http address of one", true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_and_refusals_tell_what_to_do() {
        let ok = read(b"HTTP/1.0 200 OK\r\nA: b\r\n\r\n{\"total\":3}\n").unwrap();
        assert_eq!(ok["total"], 3);
        for (answer, text, is_final) in [
            (&b"HTTP/1.0 401 Unauthorized\r\n\r\n{}"[..], "login failed", true),
            (
                b"HTTP/1.0 404 Not \
                  Found\r\n\r\n{\"error\":{\"code\":\"not_found\",\"message\":\"gone\"}}",
                "gone",
                false,
            ),
            (b"HTTP/1.0 421 \r\n\r\n{\"error\":{\"message\":\"not this host\"}}", "host", true),
            (b"HTTP/1.0 503 \r\n\r\n{\"error\":{\"message\":\"loading\"}}", "loading", false),
            (b"HTTP/1.0 200 OK\r\n\r\n<html>", "not an inbloom", true),
            (b"HTTP/1.0 200 OK", "not an HTTP", true),
            (b"-ERR unknown command 'GET'\r\n\r\n", "not an HTTP", true),
            (b"", "not an HTTP", true),
        ] {
            let failure = read(answer).unwrap_err();
            assert!(failure.message.contains(text), "{failure}");
            assert_eq!(failure.is_final, is_final, "{failure}");
        }
    }

    #[test]
    fn what_is_searched_for_cannot_change_the_request() {
        let look = Look::list(3, "a&sort=x b\r\n..", Sort::Memory, 40);
        let path = list_path(&look);
        assert_eq!(
            path,
            "/api/filters?db=3&sort=memory&order=desc&limit=40&offset=0&watch=1\
             &q=a%26sort%3Dx%20b%0D%0A.."
        );
    }
}
