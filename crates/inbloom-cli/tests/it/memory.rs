//! What the real server takes of memory, compared with its limits.
//!
//! Clients without rights do whatever makes replies, queues, names or filters grow, and read as
//! little as they can. The highest resident size of the server stays below
//! `1.15 * (--max-memory + --max-client-memory) + CONSTANT`. The commands come from the server's own
//! table: a command that nobody has classed in `commands.rs` fails the test.

mod clients;
mod commands;
mod filters;
mod operator;
mod server;
