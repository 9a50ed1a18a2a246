//! A server of membership filters that any Redis client can talk to.
//!
//! The modules are layers: each uses only those above it, and `tests/it/house.rs` checks that.
//!
//! | module | what is in it |
//! |---|---|
//! | [`clock`], [`log_throttle`] | the time of day; what is logged only now and then |
//! | `parse`, `reply_error`, [`units`] | numbers, error texts, sizes and times in settings |
//! | [`calculator`] | what a filter would cost: `inbloom plan`, `/api/plan` |
//! | [`resp`] | bytes of requests to arguments, replies to bytes |
//! | [`value`] | what a name stands for: filters; their dumps |
//! | [`keyspace`] | names, databases, expiry |
//! | [`users`], [`secret`] | who may do what; the secret of keyed hashing |
//! | `import` | the files that clients may name |
//! | [`persist`] | the log and the snapshots on disk |
//! | `settings` | what is fixed at the start, and what CONFIG SET changes |
//! | [`limits`] | the memory that filters may take |
//! | `transfers` | filters that are being dumped or loaded |
//! | [`clients`] | who is connected, and the memory that clients hold |
//! | [`statistics`], [`rates`], [`health`] | counts, rates, what is wrong at the moment |
//! | [`filter_store`] | filters that are kept outside the server: `--store` |
//! | [`history`], [`over_target`] | filters that are looked at; filters above their target rate |
//! | [`server`] | what all clients share: all of the above; what is read again on SIGHUP |
//! | [`session_state`] | a client between its requests |
//! | [`command`] | a row of the table of commands, and a call |
//! | `commands/`, [`command_table`] | every command: its row and the function that does it |
//! | [`session`] | one client: bytes in, bytes out, without a socket |
//! | [`tls`], [`connection`] | sockets and threads; [`run`] |
//! | [`metrics`], [`http`] | figures for Prometheus; the JSON API and the page |
//!
//! Everything above `connection` works on bytes, without sockets, and is tested so. These
//! touch files: `persist`, `import` (IB.OPEN and IB.SAVE), `users`, `secret`, `tls` (certificates), and, to
//! read what Linux reports, `units/machine.rs` and `commands/server/info.rs`.

pub mod calculator;
pub mod clients;
pub mod clock;
pub mod command;
mod commands;
pub mod connection;
pub mod filter_store;
pub mod health;
pub mod history;
pub mod http;
mod import;
pub mod keyspace;
pub mod limits;
pub mod log_throttle;
pub mod metrics;
pub mod over_target;
mod parse;
pub mod persist;
pub mod rates;
mod reply_error;
pub mod resp;
pub mod secret;
pub mod server;
pub mod session;
pub mod session_state;
mod settings;
pub mod statistics;
pub mod tls;
mod transfers;
pub mod units;
pub mod users;
pub mod value;

pub use commands::table as command_table;
pub use connection::{Ended, Listeners, run, run_all};
pub use reply_error::ReplyError;
pub use server::Server;
pub use session::Session;
pub use settings::{Config, HttpAccess, OPTION_NAMES, Refused, Settings, nearest};
pub use tls::Tls;
pub use users::Users;
