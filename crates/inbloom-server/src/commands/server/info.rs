//! INFO: figures in the lines of Redis, so that tools which parse them need not know us.
//!
//! What Redis tells and nothing here corresponds to (scripts, a replication backlog) is left out: a
//! zero would say that it was looked at. Where a zero is true for good (forks, channels), and
//! dashboards read the field, it is printed.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{MODULE_NAME, MODULE_VERSION, REDIS_VERSION, SERVER, config};
use crate::clock::since_1970;
use crate::command::{Call, Command, Flag, Flags};
use crate::health::LOADING;
use crate::keyspace::DATABASES;
use crate::parse;
use crate::reply_error::ReplyError;
use crate::server::Server;
use crate::settings::shown_limit;
use crate::statistics::Calls;

pub const INFO: Command = Command {
    name: "info",
    arity: -1,
    flags: Flags::of(&[Flag::Loading, Flag::Stale]),
    categories: &["dangerous"],
    summary: "Returns figures about the server",
    syntax: "[section [section ...]]",
    complexity: "O(1)",
    handler: info,
    ..SERVER
};

/// A part of the answer.
struct Section {
    name: &'static str,
    /// Shown when none is named.
    is_default: bool,
    lines: fn(&Call<'_>, &mut Lines),
}

const fn section(name: &'static str, lines: fn(&Call<'_>, &mut Lines)) -> Section {
    Section { name, is_default: true, lines }
}

static SECTIONS: &[Section] = &[
    section("Server", server),
    section("Clients", clients),
    section("Memory", memory),
    section("Persistence", persistence),
    section("Stats", stats),
    section("Replication", replication),
    section("CPU", cpu),
    section("Modules", modules),
    Section { name: "Commandstats", is_default: false, lines: command_statistics },
    section("Errorstats", error_statistics),
    section("Cluster", cluster),
    section("Keyspace", keyspace),
];

/// The text, line by line.
struct Lines(String);

impl Lines {
    fn add(&mut self, field: &str, value: impl std::fmt::Display) {
        write!(self.0, "{field}:{value}\r\n").expect("memory takes any text");
    }

    fn count(&mut self, field: &str, count: &AtomicU64) {
        self.add(field, count.load(Ordering::Relaxed));
    }

    /// In bytes, and so that people can read it.
    fn bytes(&mut self, field: &str, bytes: u64) {
        self.add(field, bytes);
        self.add(&format!("{field}_human"), human(bytes));
    }
}

fn info(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let words = call.arguments.skip(1);
    let names = |name: &str| words.iter().any(|word| parse::is(word, name));
    let everything = names("all") || names("everything");
    let default = words.is_empty() || names("default");
    let mut text = Lines(String::new());
    for section in SECTIONS {
        if everything || default && section.is_default || names(section.name) {
            if !text.0.is_empty() {
                text.0.push_str("\r\n");
            }
            write!(text.0, "# {}\r\n", section.name).expect("memory takes any text");
            (section.lines)(call, &mut text);
        }
    }
    call.reply.verbatim("txt", &text.0);
    Ok(())
}

fn server(call: &Call<'_>, lines: &mut Lines) {
    let uptime = call.server.started.elapsed().as_secs();
    lines.add("redis_version", REDIS_VERSION);
    lines.add("inbloom_version", env!("CARGO_PKG_VERSION"));
    lines.add("redis_mode", "standalone");
    lines.add("os", operating_system());
    lines.add("arch_bits", usize::BITS);
    lines.add("process_id", std::process::id());
    if let Some(port) = config::port(call) {
        lines.add("tcp_port", port);
    }
    lines.add("server_time_usec", since_1970().as_micros());
    lines.add("uptime_in_seconds", uptime);
    lines.add("uptime_in_days", uptime / 86_400);
    if let Ok(executable) = std::env::current_exe() {
        lines.add("executable", executable.display());
    }
}

/// As `uname` prints, where that is known without calling it.
fn operating_system() -> String {
    let kernel = |file| std::fs::read_to_string(format!("/proc/sys/kernel/{file}"));
    let architecture = std::env::consts::ARCH;
    match (kernel("ostype"), kernel("osrelease")) {
        (Ok(name), Ok(release)) => format!("{} {} {architecture}", name.trim(), release.trim()),
        _ => format!("{} {architecture}", std::env::consts::OS),
    }
}

fn clients(call: &Call<'_>, lines: &mut Lines) {
    lines.add("connected_clients", call.server.clients.count());
    lines.add("maxclients", call.server.settings().max_clients);
    lines.add("mem_clients_normal", call.server.clients.held.load(Ordering::Relaxed));
    lines.add("blocked_clients", 0); // No command waits for another client.
}

fn memory(call: &Call<'_>, lines: &mut Lines) {
    let used = call.server.limits.in_use();
    lines.bytes("used_memory", used);
    if let Some(resident) = resident_bytes() {
        lines.bytes("used_memory_rss", resident);
        // What the process takes for each byte of filters: much, while there are few.
        let ratio = resident as f64 / used.max(1) as f64;
        lines.add("mem_fragmentation_ratio", format_args!("{ratio:.2}"));
        lines.add("mem_fragmentation_bytes", resident as i64 - used as i64);
    }
    let peak = call.server.limits.peak();
    lines.bytes("used_memory_peak", peak);
    let percent = used as f64 * 100.0 / peak.max(1) as f64;
    lines.add("used_memory_peak_perc", format_args!("{percent:.2}%"));
    if let Some(total) = crate::units::machine::installed_memory() {
        lines.bytes("total_system_memory", total);
    }
    lines.bytes("maxmemory", shown_limit(call.server.settings().max_memory));
    lines.add("maxmemory_policy", "noeviction");
}

/// The memory of the process that is not swapped out, as Linux counts it.
pub fn resident_bytes() -> Option<u64> {
    // `statm` would be shorter, but counts in pages, whose size differs.
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

fn persistence(call: &Call<'_>, lines: &mut Lines) {
    lines.add("loading", u8::from(call.server.health.suffers(LOADING)));
    let figures = call.server.store().map(|store| store.figures());
    let is_saving = figures.as_ref().is_some_and(|figures| figures.is_saving);
    lines.add("rdb_bgsave_in_progress", u8::from(is_saving));
    if let Some(figures) = &figures {
        lines.add("rdb_changes_since_last_save", figures.unsaved);
    }
    if let Some(stored) = call.server.stored() {
        let (figures, trouble) = (stored.figures(), stored.trouble());
        lines.add("store", stored.address());
        lines.add("store_status", if trouble.is_none() { "up" } else { "down" });
        lines.count("store_requests", &figures.requests);
        lines.count("store_failures", &figures.failures);
        lines.add("store_trouble", trouble.unwrap_or_default());
    }
    lines.add("rdb_last_save_time", saved_at(call.server));
    lines.add("aof_enabled", u8::from(figures.is_some()));
    let Some(figures) = figures else { return };
    let status = |is_well| if is_well { "ok" } else { "err" };
    lines.add("rdb_last_bgsave_status", status(figures.status.error.is_none()));
    lines.add("rdb_last_bgsave_time_sec", figures.status.done.millis.div_ceil(1000));
    lines.add("aof_last_write_status", status(figures.trouble.is_none()));
    lines.add("aof_current_size", figures.log_bytes);
    lines.add("log_policy", call.server.settings().fsync.name());
    lines.add("log_bytes_written", figures.log_bytes_total);
    lines.add("log_records", figures.records);
    lines.add("log_syncs", figures.syncs);
    lines.add("log_trouble", figures.trouble.unwrap_or_default());
    lines.add("snapshot_filters", figures.status.done.filters);
    lines.add("snapshot_bytes", figures.status.done.bytes);
    lines.add("snapshot_millis", figures.status.done.millis);
    lines.add("snapshot_error", figures.status.error.unwrap_or_default());
}

/// When the last snapshot was complete, or the server began, in seconds since 1970.
pub fn saved_at(server: &Server) -> u64 {
    let saved = server.store().map_or(0, |store| store.figures().status.saved / 1000);
    if saved > 0 { saved } else { started_at(server) }
}

/// When the server began, in seconds since 1970.
pub fn started_at(server: &Server) -> u64 {
    since_1970().saturating_sub(server.started.elapsed()).as_secs()
}

fn stats(call: &Call<'_>, lines: &mut Lines) {
    let statistics = &call.server.statistics;
    lines.count("total_connections_received", &statistics.connections);
    lines.count("total_commands_processed", &statistics.commands);
    let rates = call.server.rates.now();
    lines.add("instantaneous_ops_per_sec", rates.commands.round() as u64);
    lines.count("total_net_input_bytes", &statistics.bytes_in);
    lines.count("total_net_output_bytes", &statistics.bytes_out);
    lines.add("instantaneous_input_kbps", format_args!("{:.2}", rates.bytes_in / 1024.0));
    lines.add("instantaneous_output_kbps", format_args!("{:.2}", rates.bytes_out / 1024.0));
    lines.count("rejected_connections", &statistics.rejected);
    lines.count("client_output_buffer_limit_disconnections", &statistics.unread);
    lines.count("evicted_clients", &call.server.clients.evicted);
    lines.count("acl_access_denied_auth", &statistics.failed_logins);
    lines.count("acl_access_denied_cmd", &statistics.forbidden);
    lines.add("expired_keys", call.server.keyspace.expired());
    lines.add("evicted_keys", 0); // No key is removed to make room for another.
    lines.count("keyspace_hits", &statistics.hits);
    lines.count("keyspace_misses", &statistics.misses);
    lines.count("total_error_replies", &statistics.errors);
    lines.add("pubsub_channels", 0); // There are no channels,
    lines.add("pubsub_patterns", 0);
    lines.add("latest_fork_usec", 0); // and the process never forks: snapshots are taken by a thread.
    lines.add("total_forks", 0);
}

fn replication(_: &Call<'_>, lines: &mut Lines) {
    lines.add("role", "master");
    lines.add("connected_slaves", 0);
    lines.add("master_repl_offset", 0); // Nothing is replicated.
}

fn cpu(_: &Call<'_>, lines: &mut Lines) {
    let Some((user, system)) = processor_seconds() else { return };
    lines.add("used_cpu_sys", format_args!("{system:.6}"));
    lines.add("used_cpu_user", format_args!("{user:.6}"));
}

/// The seconds that all threads of the process have run, outside and inside the kernel.
pub fn processor_seconds() -> Option<(f64, f64)> {
    /// Linux tells hundredths of a second to programs, whatever its own clock does.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the name in parentheses, in which anything may be: the third follows the
    // last of them. The times are fields 14 and 15.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut times = rest.split_whitespace().skip(11).map(|word| word.parse::<f64>().ok());
    Some((times.next()?? / TICKS_PER_SECOND, times.next()?? / TICKS_PER_SECOND))
}

fn modules(_: &Call<'_>, lines: &mut Lines) {
    let module = format!(
        "name={MODULE_NAME},ver={MODULE_VERSION},api=1,filters=0,usedby=[],using=[],options=[]"
    );
    lines.add("module", module);
}

fn command_statistics(call: &Call<'_>, lines: &mut Lines) {
    let by_command = call.server.statistics.by_command.lock().clone();
    let mut counted: Vec<_> = by_command.into_iter().collect();
    counted.sort_unstable_by_key(|(name, _)| *name);
    for (name, sum) in counted {
        let micros = sum.nanos / 1000;
        let each = sum.nanos as f64 / 1000.0 / sum.calls.max(1) as f64;
        let Calls { calls, failed, rejected, .. } = sum;
        lines.add(
            &format!("cmdstat_{name}"),
            format_args!(
                "calls={calls},usec={micros},usec_per_call={each:.2},\
                 rejected_calls={rejected},failed_calls={failed}"
            ),
        );
    }
}

fn error_statistics(call: &Call<'_>, lines: &mut Lines) {
    for (code, count) in &*call.server.statistics.by_error.lock() {
        lines.add(&format!("errorstat_{code}"), format_args!("count={count}"));
    }
}

fn cluster(_: &Call<'_>, lines: &mut Lines) {
    lines.add("cluster_enabled", 0);
}

fn keyspace(call: &Call<'_>, lines: &mut Lines) {
    for database in 0..DATABASES {
        let keys = call.server.keyspace.len(database);
        if keys > 0 {
            let (expires, average) = expiring(call, database, keys);
            lines.add(
                &format!("db{database}"),
                format_args!("keys={keys},expires={expires},avg_ttl={average},subexpiry=0"),
            );
        }
    }
}

/// How many keys have a time of expiry, and the milliseconds that these have left on average:
/// counted in a database of few keys, else inferred from a sample. Names are visited in the order
/// of their hashes, so that the first ones are as good as any.
fn expiring(call: &Call<'_>, database: usize, keys: u64) -> (u64, u64) {
    /// Looked at within some hundred microseconds, and off by 1% of the keys in most cases.
    const SAMPLE: usize = 4096;
    let (mut seen, mut expiring, mut left) = (0u64, 0u64, 0u128);
    let visit = |_: &[u8], entry: &Arc<crate::keyspace::Entry>| {
        seen += 1;
        if let Some(at) = entry.expires() {
            expiring += 1;
            left += u128::from(at.saturating_sub(call.now));
        }
    };
    let rest = call.server.keyspace.scan(database, 0, SAMPLE, call.now, visit);
    let average = (left / u128::from(expiring.max(1))) as u64;
    if rest == 0 {
        return (expiring, average);
    }
    let inferred = u128::from(expiring) * u128::from(keys) / u128::from(seen.max(1));
    (inferred as u64, average)
}

/// Bytes as Redis shows them to people: `1.56M`.
fn human(bytes: u64) -> String {
    let mut amount = bytes as f64;
    let mut units = ["K", "M", "G", "T", "P", "E"].iter();
    let mut unit = "B";
    while amount >= 1024.0 {
        let Some(next) = units.next() else { break };
        unit = next;
        amount /= 1024.0;
    }
    if unit == "B" { format!("{bytes}B") } else { format!("{amount:.2}{unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_as_redis_shows_them() {
        for (bytes, shown) in
            [(0, "0B"), (1023, "1023B"), (1024, "1.00K"), (1_632_064, "1.56M"), (1 << 40, "1.00T")]
        {
            assert_eq!(human(bytes), shown);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_process_has_used_memory_and_time() {
        assert!(resident_bytes().expect("Linux tells it") > 100_000);
        let begin = processor_seconds().expect("Linux tells it");
        let mut sum = 0u64;
        // At least two ticks of the clock: a hundredth of a second each.
        while processor_seconds().expect("as before").0 < begin.0 + 0.02 {
            sum = std::hint::black_box(sum.wrapping_mul(3) + 1);
        }
    }
}
