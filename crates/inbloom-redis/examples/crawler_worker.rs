//! A worker of a crawler: many of them, on many machines, share one filter of the URLs that were seen.
//!
//! ```text
//! cargo run --example crawler_worker -- redis://localhost:7000/seen urls.txt done.txt
//! ```
//!
//! It reads URLs from a file and prints those that it fetches: `new URL` for one that nobody has
//! seen, and `again URL` where that cannot be known. Then it writes into the last file how many lines
//! it is done with, and goes on from there after a restart.
//!
//! A crawler must not skip a page. A worker that dies between the filter's answer and the fetch
//! has marked a URL as seen that nobody fetches. So the lines after the last entry in `done.txt` are
//! in doubt after a restart, and the worker fetches them all. Some pages are fetched twice: those whose
//! answer was lost with a connection, and those of a batch in which a worker died.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use inbloom_redis::{Added, Address, Client, Durability, Error as Failure, Options, RedisFilter};

/// URLs that are asked for at once.
const BATCH: usize = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, urls, done] = arguments.as_slice() else {
        println!("usage: crawler_worker redis://HOST/NAME URLS DONE");
        return Ok(());
    };
    crawl(address, urls, done, std::io::stdout())
}

/// Fetches the URLs of a file that nobody has seen.
pub fn crawl(
    address: &str,
    urls: &str,
    done: &str,
    mut output: impl Write,
) -> Result<(), Box<dyn Error>> {
    let address: Address = address.parse()?;
    let mut options = Options::default();
    // A URL counts as seen when a replica knows it too: no failover forgets it.
    options.durability = Durability::Replicas(1);
    options.deadline = Duration::from_secs(60);
    let client = Client::connect(address.server(), options)?;
    let plan = inbloom_redis::plan(10_000_000, 1e-4)?;
    let seen = RedisFilter::open_or_create(&client, address.name(), plan)?;

    let mut position: usize =
        fs::read_to_string(done).ok().and_then(|t| t.trim().parse().ok()).unwrap_or(0);
    // After a restart, the next batch may have been marked as seen and not fetched.
    let mut in_doubt = fs::exists(done)?;
    fs::write(done, position.to_string())?;
    let mut lines = BufReader::new(fs::File::open(urls)?).lines().skip(position);
    loop {
        let batch: Vec<String> = lines.by_ref().take(BATCH).collect::<Result<_, _>>()?;
        if batch.is_empty() {
            return Ok(());
        }
        let mut answers = Vec::new();
        while let Err(error) = seen.insert_many(&batch, &mut answers) {
            // Servers come back. Chunks that were lost, or a filter that was deleted, do not.
            if !matches!(error, Failure::Unavailable { .. } | Failure::NotReplicated { .. }) {
                return Err(error.into());
            }
            eprintln!("{error}; trying again");
            // What the call has done of it cannot be known.
            in_doubt = true;
        }
        for (url, answer) in batch.iter().zip(&answers) {
            match answer {
                Added::New => writeln!(output, "new {url}")?,
                Added::Unknown => writeln!(output, "again {url}")?,
                Added::Present if in_doubt => writeln!(output, "again {url}")?,
                Added::Present | Added::Failed => {}
            }
        }
        // Here it would fetch them. They are done once that is written down.
        output.flush()?;
        position += batch.len();
        fs::write(done, position.to_string())?;
        in_doubt = false;
    }
}
