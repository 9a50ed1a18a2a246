//! The server as its clients see it. One program for all files: it links once, and keeps all cores busy.

mod client;
mod connection;
mod connections;
mod documentation;
mod durability;
mod extensions;
mod house;
mod http;
mod http_api;
mod keys;
mod limits;
mod model;
mod operators;
mod racing;
mod replay;
mod resp;
mod security;
mod sockets;
mod store;
mod transactions;
mod transfer;
