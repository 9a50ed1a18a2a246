//! A server of membership filters that any Redis client can talk to.
//!
//! | file | what is in it |
//! |---|---|
//! | [`resp`] | bytes of requests to arguments, answers to bytes |
//! | [`command_table`] | every command: name, arity, flags, keys, help, and the function that does it |
//! | `commands/` | those functions, by subject |
//! | [`session`] | one client: bytes in, bytes out, without a socket |
//! | [`keyspace`] | names, databases, expiry |
//! | [`value`] | what a name stands for: filters |
//! | [`persist`] | what is kept on disk |
//! | [`server`] | what all clients share: keyspace, settings, statistics |
//! | [`users`] | who may do what |
//! | [`secret`] | the secret of keyed hashing |
//! | [`tls`] | connections in the clear and under TLS |
//! | [`connection`] | sockets and threads; [`run`] |
//! | [`http`], [`metrics`] | what monitors ask: figures for Prometheus, and whether all is well |
//! | [`holdings`] | the memory of clients, entered as it grows |
//! | [`health`] | what is wrong at the moment |
//! | [`rates`] | how much is done a second |
//! | [`reload`] | what is read again on SIGHUP |
//! | [`log_throttle`] | what is logged only now and then |
//!
//! Everything below `connection` works on bytes, without sockets, and is tested so. Files are touched by
//! IB.OPEN and IB.SAVE, `users` and `secret` alone.

pub mod command_table;
mod commands;
mod config;
pub mod connection;
pub mod health;
pub mod holdings;
pub mod http;
mod import;
pub mod keyspace;
pub mod log_throttle;
pub mod metrics;
pub mod persist;
pub mod rates;
pub mod reload;
mod reply_error;
pub mod resp;
pub mod secret;
pub mod server;
pub mod session;
pub mod tls;
pub mod users;
pub mod value;

pub use commands::server::config::{OPTION_NAMES, Refused, nearest};
pub use config::{Config, Settings};
pub use connection::{Ended, Listeners, run, run_all};
pub use reply_error::ReplyError;
pub use server::Server;
pub use session::Session;
pub use tls::Tls;
pub use users::Users;
