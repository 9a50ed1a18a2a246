//! One connection to one node: redis-rs makes it, and reads the replies. Retries are not its business.

use std::time::{Duration, Instant};

use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, ServerError, Value,
    io::tcp::TcpSettings,
};

use crate::address::Server;
use crate::command::Commands;
use crate::error::Error;
use crate::options::Options;
use crate::topology::Node;

/// Why nothing was exchanged: the connection, in words, or what no retry helps against.
#[derive(Debug)]
pub(crate) enum Trouble {
    Connection(String),
    Fatal(Error),
}

/// A connection to a node.
pub(crate) struct Wire {
    connection: redis::Connection,
    pub node: Node,
    /// Whether it is to a replica, after READONLY.
    pub reads_only: bool,
    used: Instant,
}

/// A connection that was idle for longer is tried before it is used: what fails then was certainly
/// not sent.
const FRESH: Duration = Duration::from_secs(1);

impl Wire {
    /// Connects.
    pub fn open(
        node: &Node,
        reads_only: bool,
        server: &Server,
        options: &Options,
    ) -> Result<Wire, Trouble> {
        let failed = |error: redis::RedisError| trouble(node, server, &error);
        let info = connection_info(node, server).map_err(failed)?;
        let client = match (&options.root_certificate, server.tls) {
            (Some(pem), true) => redis::Client::build_with_tls(
                info,
                redis::TlsCertificates { client_tls: None, root_cert: Some(pem.clone()) },
            ),
            _ => redis::Client::open(info),
        };
        let connection = client
            .and_then(|client| client.get_connection_with_timeout(options.connect_timeout))
            .map_err(failed)?;
        connection.set_read_timeout(Some(options.response_timeout)).map_err(failed)?;
        connection.set_write_timeout(Some(options.response_timeout)).map_err(failed)?;
        let mut wire = Wire { connection, node: node.clone(), reads_only, used: Instant::now() };
        if reads_only {
            wire.ask(&[b"READONLY"])?;
        }
        Ok(wire)
    }

    /// Returns whether it can be used again.
    pub fn is_alive(&mut self) -> bool {
        self.used.elapsed() < FRESH || self.ask(&[b"PING"]).is_ok()
    }

    /// Sends commands, with one write.
    pub fn send(&mut self, commands: &Commands) -> Result<(), Trouble> {
        let sent = self.connection.send_packed_command(commands.bytes());
        sent.map_err(|error| self.broken(&error))
    }

    /// Reads the next reply. An error of the server is a reply.
    pub fn receive(&mut self) -> Result<Value, Trouble> {
        let reply = self.connection.recv_response().map_err(|error| self.broken(&error));
        self.used = Instant::now();
        reply
    }

    /// Sends one command and reads its reply.
    pub fn ask(&mut self, arguments: &[&[u8]]) -> Result<Value, Trouble> {
        let mut commands = Commands::default();
        commands.command(arguments);
        self.send(&commands)?;
        self.receive()
    }

    fn broken(&self, error: &redis::RedisError) -> Trouble {
        Trouble::Connection(format!("{}: {}", self.node, words_of(error)))
    }
}

fn connection_info(node: &Node, server: &Server) -> redis::RedisResult<ConnectionInfo> {
    let (host, port) = (node.host.clone(), node.port);
    let address = match server.tls {
        false => ConnectionAddr::Tcp(host, port),
        true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
    };
    let mut login = RedisConnectionInfo::default()
        .set_db(server.database.into())
        .set_protocol(redis::ProtocolVersion::RESP2)
        .set_lib_name("inbloom", env!("CARGO_PKG_VERSION"));
    if let Some(user) = &server.user {
        login = login.set_username(user);
    }
    if let Some(password) = &server.password {
        login = login.set_password(password);
    }
    // A pipeline is one write: there is no more to send that the system should wait for.
    let tcp = TcpSettings::default().set_nodelay(true);
    Ok(address.into_connection_info()?.set_tcp_settings(tcp).set_redis_settings(login))
}

/// Says why there is no connection. What the server itself refused is not tried again.
fn trouble(node: &Node, server: &Server, error: &redis::RedisError) -> Trouble {
    let text = words_of(error);
    let retried = error.is_io_error()
        || matches!(error.code(), Some("LOADING" | "CLUSTERDOWN" | "MASTERDOWN" | "TRYAGAIN"));
    if retried {
        return Trouble::Connection(format!("{node}: {text}"));
    }
    if server.database > 0 && text.to_lowercase().contains("database") {
        let database = server.database;
        return Trouble::Fatal(Error::Database { database, problem: text });
    }
    Trouble::Fatal(Error::Server { node: node.to_string(), text })
}

/// Returns what went wrong. The system's words for a time that is over would mislead.
fn words_of(error: &redis::RedisError) -> String {
    if error.is_timeout() { "no reply in time".to_owned() } else { error.to_string() }
}

/// Returns the error that a reply is, or that a reply in it is.
pub(crate) fn error_in(reply: &Value) -> Option<&ServerError> {
    match reply {
        Value::ServerError(error) => Some(error),
        Value::Array(replies) => replies.iter().find_map(error_in),
        _ => None,
    }
}

/// Returns the words of a server's error.
pub(crate) fn text_of(error: &ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}
