//! CF.*, SCANDUMP and LOADCHUNK, DUMP and RESTORE: bytes in, bytes out.

mod client;
mod cuckoo;
mod dumps;
mod loads;
mod mutated;
mod restore;
