//! `inbloom top`: the filters and the health of a server in a terminal, live.
//!
//! It reads the JSON API that the web page reads. A thread asks the server ([`client`]), so that keys are
//! answered while the server is not. [`screen`] turns answers into lines, without a terminal; [`terminal`]
//! shows them and reads keys.

mod client;
mod screen;
mod terminal;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::login::LoginArgs;
use crate::output;
use crate::signals::Signals;
use client::{Client, Look, Snapshot, Sort};
use screen::View;
use terminal::{Key, Terminal};

/// Watch the filters and the health of a server in the terminal.
///
/// Reads the JSON API of a server that was started with --http. If standard output is not a
/// terminal, prints the list once and ends.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The server's --http address
    #[arg(value_name = "ADDRESS", default_value = "127.0.0.1:7380")]
    address: String,

    /// Column to sort by
    #[arg(long, value_name = "COLUMN", value_enum, default_value_t = Sort::Used)]
    sort: Sort,

    /// Show only filters with this text in their name, ignoring case
    #[arg(short, long, value_name = "TEXT", default_value = "")]
    search: String,

    /// Number of the database
    #[arg(long, value_name = "NUMBER", default_value_t = 0,
          value_parser = clap::value_parser!(u8).range(0..=15))]
    db: u8,

    /// Seconds between two updates
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,

    /// Print the list once and end
    #[arg(long)]
    once: bool,

    /// Rows to print with --once
    #[arg(long, value_name = "NUMBER", default_value_t = 20,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    rows: u16,

    #[command(flatten)]
    login: LoginArgs,
}

const EXAMPLES: &str = "\
Keys:
  Up, Down, Page Up, Page Down   choose a filter
  Enter, Esc                     open it, and go back to the list
  n k c u m                      sort by name, keys, capacity, used or memory; again: reverse
  /                              search names
  d                              show the next database that has filters
  t                              switch between 15 minutes and 24 hours
  h                              show the health of the server
  q                              quit

Examples:
  inbloom top                                     the server at 127.0.0.1:7380
  inbloom top --sort memory 10.0.0.5:7380
  inbloom top --once --rows 5 --search user:

Exit status:
  0  ended by the user, or printed once
  2  the server did not reply, or refused; standard error has the reason";

pub fn run(args: &Args) -> Result<ExitCode> {
    let client = Client::new(&args.address, args.login.read()?)?;
    let is_live = !args.once && io::stdout().is_terminal() && io::stdin().is_terminal();
    let mut look = Look::list(args.db, &args.search, args.sort, args.rows.into());
    // A wrong address or password is a message, not a screen.
    let first = client.fetch(&look).with_context(|| args.address.clone())?;
    let mut view = View::new(&args.address);
    if !is_live {
        view.show(first);
        output::print(view.text(&look).as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let signals = Signals::catch()?;
    let mut terminal = Terminal::open()?;
    let (looks, snapshots) = ask_in_background(client)?;
    view.show(first);
    let interval = Duration::from_secs(args.interval);
    let mut asked = None;
    while signals.came().is_none() {
        let (width, height) = terminal.size();
        look.fit(height);
        let is_due = asked.as_ref().is_none_or(|(before, at): &(Look, Instant)| {
            *before != look || at.elapsed() >= interval
        });
        if is_due {
            let gone = "the thread that queries the server has ended";
            looks.send(look.clone()).ok().context(gone)?;
            asked = Some((look.clone(), Instant::now()));
        }
        terminal.draw(&view.frame(&look, width, height))?;
        match terminal.key(Duration::from_millis(100))? {
            Some(Key::Interrupt) => break,
            Some(key) if view.press(key, &mut look) == screen::AfterKey::Quit => break,
            Some(_) | None => {}
        }
        for answer in snapshots.try_iter() {
            match answer {
                Ok(snapshot) => view.show(snapshot),
                Err(failure) if failure.is_final => bail!("{}: {failure}", args.address),
                Err(failure) => view.miss(&failure),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

type Fetched = std::result::Result<Snapshot, client::Failure>;

/// A thread that answers looks, always the last one.
fn ask_in_background(client: Client) -> Result<(Sender<Look>, Receiver<Fetched>)> {
    let (looks, wanted) = mpsc::channel::<Look>();
    let (answers, snapshots) = mpsc::channel();
    let work = move || {
        while let Ok(look) = wanted.recv() {
            let look = wanted.try_iter().last().unwrap_or(look);
            if answers.send(client.fetch(&look)).is_err() {
                break;
            }
        }
    };
    thread::Builder::new().name("ask".into()).spawn(work)?;
    Ok((looks, snapshots))
}
