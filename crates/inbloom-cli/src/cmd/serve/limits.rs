//! What clients may take: the options of `serve` about limits. CONFIG SET changes them while it
//! runs.

use inbloom_server::Settings;
use inbloom_server::units;

#[derive(clap::Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitArgs {
    /// Memory for all filters together: 64MiB, 8G (8GB is 8GiB) [default: three quarters of memory]
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes)]
    max_memory: Option<u64>,

    /// Memory for one filter, also when it grows [default: --max-memory]
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes)]
    max_filter: Option<u64>,

    /// Number of clients at once; more are refused
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clients())]
    max_clients: u32,

    /// Memory for all clients together: requests, queues and unread replies [default: an eighth of
    /// memory]
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes)]
    max_client_memory: Option<u64>,

    /// Largest argument of a request, 1MiB to 4GiB [default: 64MiB]
    #[arg(long, value_name = "BYTES", value_parser = request_bytes)]
    max_argument: Option<u64>,

    /// Largest request, 1MiB to 4GiB [default: 256MiB]
    #[arg(long, value_name = "BYTES", value_parser = request_bytes)]
    max_request: Option<u64>,

    /// Largest transaction between MULTI and EXEC [default: 64MiB]
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes)]
    max_multi: Option<u64>,

    /// Seconds until an idle client is disconnected; 0 for never
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = seconds())]
    timeout: u64,

    /// Seconds until a client that does not read its replies is disconnected; 0 for never
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = seconds())]
    write_timeout: u64,
}

impl LimitArgs {
    /// Changes what was given.
    pub fn apply(&self, settings: &mut Settings) {
        let bytes = |given: Option<u64>, setting: &mut u64| *setting = given.unwrap_or(*setting);
        bytes(self.max_memory, &mut settings.max_memory);
        bytes(self.max_filter, &mut settings.max_filter);
        bytes(self.max_client_memory, &mut settings.max_client_memory);
        let bytes = |given: Option<u64>, setting: &mut usize| {
            let given = given.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
            *setting = given.unwrap_or(*setting);
        };
        bytes(self.max_argument, &mut settings.max_argument);
        bytes(self.max_request, &mut settings.max_request);
        bytes(self.max_multi, &mut settings.max_multi);
        settings.max_clients = self.max_clients as usize;
        settings.timeout = self.timeout;
        settings.write_timeout = self.write_timeout;
    }
}

fn clients() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

/// What CONFIG SET takes too.
fn seconds() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(..=i32::MAX as u64)
}

/// As CONFIG SET takes them for a request and its arguments.
fn request_bytes(text: &str) -> Result<u64, String> {
    let bytes = units::parse_bytes(text)?;
    let range = 1 << 20..=u64::from(u32::MAX);
    match range.contains(&bytes) {
        true => Ok(bytes),
        // 4 GiB, which everybody writes who means it, is one byte too many for the numbers inside.
        false if bytes == range.end() + 1 => Ok(*range.end()),
        false => Err(String::from("from 1MiB to 4GiB")),
    }
}
