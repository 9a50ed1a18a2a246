//! What commands do, by subject. Each file begins with its rows of the table.

pub mod bloom;
pub mod connection;
pub mod cuckoo;
pub mod extensions;
pub mod glob;
pub mod keys;
pub mod server;
pub mod stored;
pub mod table;
pub mod transactions;
pub mod transfer;
