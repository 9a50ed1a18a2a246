//! Figures for Prometheus, in its text format or in that of OpenMetrics, as the reader asks.
//!
//! They differ in little: OpenMetrics names a counter without `_total` where it is described, tells units
//! and marks the end. A reader of the other format would take such counters for undescribed.
//!
//! One table: a figure is a row of `FIGURES`, which docs/operations.md is checked against. They
//! are read when they are asked for, from the counters that INFO tells too: nothing is counted
//! twice.
//! Names and units follow <https://prometheus.io/docs/practices/naming/>.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::commands::server::info;
use crate::keyspace::DATABASES;
use crate::persist;
use crate::server::Server;
use crate::statistics::Calls;

/// What figures can be written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The text format of Prometheus, version 0.0.4.
    Plain,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// What the header `Accept` of a request prefers; plain if it does not say.
    pub fn accepted(header: &str) -> Format {
        let (mut plain, mut open) = (0.0, 0.0);
        for range in header.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok());
            let weight: f64 = weight.unwrap_or(1.0);
            match &*kind {
                "application/openmetrics-text" => open = weight.max(open),
                "text/plain" | "text/*" | "*/*" => plain = weight.max(plain),
                _ => {}
            }
        }
        if open > 0.0 && open >= plain { Format::OpenMetrics } else { Format::Plain }
    }

    /// For the header of an answer.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Plain => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// All figures, as Prometheus reads them.
pub fn text(server: &Arc<Server>, format: Format) -> String {
    let mut registry = Registry::with_prefix("inbloom");
    registry.register_collector(Box::new(ServerCollector(Arc::clone(server))));
    let mut out = String::new();
    text::encode(&mut out, &registry).expect("memory takes any text");
    match format {
        Format::OpenMetrics => out,
        Format::Plain => plain(&out),
    }
}

/// What OpenMetrics says, in the older format.
fn plain(open: &str) -> String {
    let mut out = String::with_capacity(open.len());
    let is_counter = |name: &str| open.contains(&format!("\n# TYPE {name} counter\n"));
    for line in open.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(word @ ("HELP" | "TYPE")), Some(name), Some(rest)) => {
                let end = if is_counter(name) { "_total" } else { "" };
                out.push_str(&format!("# {word} {name}{end} {rest}\n"));
            }
            (Some("#"), Some("UNIT" | "EOF"), ..) => {}
            _ => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

/// A row of the table.
struct Figure {
    /// Without `inbloom_` and without the `_total` of counters; it ends with the unit.
    name: &'static str,
    kind: Kind,
    help: &'static str,
    tell: fn(&Server, &mut Samples<'_, '_>) -> fmt::Result,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Only rises, until the server or its counts begin anew.
    Counter,
    /// Rises and falls.
    Gauge,
}

/// Where the values of a figure go.
struct Samples<'a, 'e> {
    kind: Kind,
    encoder: &'a mut MetricEncoder<'e>,
}

impl Samples<'_, '_> {
    /// The only value.
    fn value(&mut self, value: f64) -> fmt::Result {
        tell(self.kind, self.encoder, value)
    }

    /// The only value, a count.
    fn count(&mut self, count: &AtomicU64) -> fmt::Result {
        self.value(count.load(Ordering::Relaxed) as f64)
    }

    /// One of several, with a label.
    fn labelled(&mut self, label: &str, named: &str, value: f64) -> fmt::Result {
        tell(self.kind, &mut self.encoder.encode_family(&[(label, named)])?, value)
    }

    /// One for each command that was called.
    fn by_command(&mut self, server: &Server, value: fn(&Calls) -> f64) -> fmt::Result {
        let mut counted: Vec<(&str, Calls)> =
            server.statistics.by_command.lock().iter().map(|(name, sum)| (*name, *sum)).collect();
        counted.sort_unstable_by_key(|(name, _)| *name);
        for (name, sum) in counted {
            self.labelled("command", name, value(&sum))?;
        }
        Ok(())
    }
}

fn tell(kind: Kind, encoder: &mut MetricEncoder<'_>, value: f64) -> fmt::Result {
    // Counts are printed without a point up to 2^53: scripts read them as whole numbers.
    let is_whole = value.fract() == 0.0 && (0.0..9e15).contains(&value);
    match (kind, is_whole) {
        (Kind::Counter, true) => {
            encoder.encode_counter::<NoLabelSet, _, f64>(&(value as u64), None)
        }
        (Kind::Counter, false) => encoder.encode_counter::<NoLabelSet, _, f64>(&value, None),
        (Kind::Gauge, true) => encoder.encode_gauge(&(value as u64)),
        (Kind::Gauge, false) => encoder.encode_gauge(&value),
    }
}

/// Registered anew for each answer, as it takes no time to.
struct ServerCollector(Arc<Server>);

impl fmt::Debug for ServerCollector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ServerCollector")
    }
}

impl Collector for ServerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Figure { name, kind, help, tell } in FIGURES {
            // The encoder puts the unit back, and says what it is.
            let (name, unit) = match name.rsplit_once('_') {
                Some((name, "bytes")) => (name, Some(Unit::Bytes)),
                Some((name, "seconds")) => (name, Some(Unit::Seconds)),
                _ => (*name, None),
            };
            let shown = match kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
            };
            let mut encoder = encoder.encode_descriptor(name, help, unit.as_ref(), shown)?;
            tell(&self.0, &mut Samples { kind: *kind, encoder: &mut encoder })?;
        }
        Ok(())
    }
}

static FIGURES: &[Figure] = &[
    Figure {
        name: "build_info",
        kind: Kind::Gauge,
        help: "Always 1, with the version",
        tell: |_, samples| samples.labelled("version", env!("CARGO_PKG_VERSION"), 1.0),
    },
    Figure {
        name: "healthy",
        kind: Kind::Gauge,
        help: "1 if /healthz reports ok, else 0",
        tell: |server, samples| samples.value(server.troubles().is_none().into()),
    },
    Figure {
        name: "uptime_seconds",
        kind: Kind::Gauge,
        help: "Time since the start",
        tell: |server, samples| samples.value(server.started.elapsed().as_secs_f64()),
    },
    Figure {
        name: "processor_seconds",
        kind: Kind::Counter,
        help: "Time of all threads, outside (user) and inside (system) the kernel",
        tell: |_, samples| match info::processor_seconds() {
            Some((user, system)) => {
                samples.labelled("mode", "user", user)?;
                samples.labelled("mode", "system", system)
            }
            None => Ok(()),
        },
    },
    Figure {
        name: "memory_used_bytes",
        kind: Kind::Gauge,
        help: "Memory of filters and their names, and of dumps under way",
        tell: |server, samples| samples.value(server.limits.in_use() as f64),
    },
    Figure {
        name: "memory_limit_bytes",
        kind: Kind::Gauge,
        help: "Limit of that memory (--max-memory); absent if there is none",
        tell: |server, samples| match server.settings().max_memory {
            u64::MAX => Ok(()),
            limit => samples.value(limit as f64),
        },
    },
    Figure {
        name: "memory_resident_bytes",
        kind: Kind::Gauge,
        help: "Memory of the process that is not swapped out, files it maps included",
        tell: |_, samples| match info::resident_bytes() {
            Some(bytes) => samples.value(bytes as f64),
            None => Ok(()),
        },
    },
    Figure {
        name: "keys",
        kind: Kind::Gauge,
        help: "Number of filters in each database that is not empty",
        tell: |server, samples| {
            for database in 0..DATABASES {
                let keys = server.keyspace.len(database);
                if keys > 0 {
                    samples.labelled("db", &database.to_string(), keys as f64)?;
                }
            }
            Ok(())
        },
    },
    Figure {
        name: "expired_keys",
        kind: Kind::Counter,
        help: "Keys that expired",
        tell: |server, samples| samples.value(server.keyspace.expired() as f64),
    },
    Figure {
        name: "key_hits",
        kind: Kind::Counter,
        help: "Keys that reading commands found",
        tell: |server, samples| samples.count(&server.statistics.hits),
    },
    Figure {
        name: "key_misses",
        kind: Kind::Counter,
        help: "Keys that reading commands did not find",
        tell: |server, samples| samples.count(&server.statistics.misses),
    },
    Figure {
        name: "items_added",
        kind: Kind::Counter,
        help: "Items added to filters, new to them or not",
        tell: |server, samples| samples.count(&server.statistics.items_added),
    },
    Figure {
        name: "items_asked",
        kind: Kind::Counter,
        help: "Items queried in filters",
        tell: |server, samples| samples.count(&server.statistics.items_asked),
    },
    Figure {
        name: "filters_over_target",
        kind: Kind::Gauge,
        help: "Filters above their target rate at the last check of all filters",
        tell: |server, samples| samples.value(server.over_target.count() as f64),
    },
    Figure {
        name: "filters_passed_target",
        kind: Kind::Counter,
        help: "Number of times that a filter passed its target rate",
        tell: |server, samples| samples.value(server.over_target.passed() as f64),
    },
    Figure {
        name: "filters_full",
        kind: Kind::Gauge,
        help: "Filters that refuse new items because they are full",
        tell: |server, samples| samples.value(server.over_target.full() as f64),
    },
    Figure {
        name: "clients",
        kind: Kind::Gauge,
        help: "Clients connected",
        tell: |server, samples| samples.value(server.clients.count() as f64),
    },
    Figure {
        name: "clients_limit",
        kind: Kind::Gauge,
        help: "Limit of connected clients (--max-clients)",
        tell: |server, samples| samples.value(server.settings().max_clients as f64),
    },
    Figure {
        name: "connections",
        kind: Kind::Counter,
        help: "Connections accepted, rejected ones included",
        tell: |server, samples| samples.count(&server.statistics.connections),
    },
    Figure {
        name: "connections_rejected",
        kind: Kind::Counter,
        help: "Connections rejected by --max-clients or protected mode",
        tell: |server, samples| samples.count(&server.statistics.rejected),
    },
    Figure {
        name: "received_bytes",
        kind: Kind::Counter,
        help: "Bytes of requests",
        tell: |server, samples| samples.count(&server.statistics.bytes_in),
    },
    Figure {
        name: "sent_bytes",
        kind: Kind::Counter,
        help: "Bytes of replies",
        tell: |server, samples| samples.count(&server.statistics.bytes_out),
    },
    Figure {
        name: "commands",
        kind: Kind::Counter,
        help: "Calls of each command",
        tell: |server, samples| samples.by_command(server, |sum| sum.calls as f64),
    },
    Figure {
        name: "commands_seconds",
        kind: Kind::Counter,
        help: "Time spent in each command",
        tell: |server, samples| samples.by_command(server, |sum| sum.nanos as f64 / 1e9),
    },
    Figure {
        name: "commands_failed",
        kind: Kind::Counter,
        help: "Calls of each command that ended with an error",
        tell: |server, samples| samples.by_command(server, |sum| sum.failed as f64),
    },
    Figure {
        name: "commands_rejected",
        kind: Kind::Counter,
        help: "Calls of each command refused before they began: arguments, AUTH",
        tell: |server, samples| samples.by_command(server, |sum| sum.rejected as f64),
    },
    Figure {
        name: "errors",
        kind: Kind::Counter,
        help: "Error replies, by their first word",
        tell: |server, samples| {
            let by_error = server.statistics.by_error.lock().clone();
            by_error
                .iter()
                .try_for_each(|(code, count)| samples.labelled("code", code, *count as f64))
        },
    },
    Figure {
        name: "slow_log_entries",
        kind: Kind::Gauge,
        help: "Slow commands in SLOWLOG",
        tell: |server, samples| samples.value(server.slow_log.lock().entries.len() as f64),
    },
    Figure {
        name: "log_bytes",
        kind: Kind::Gauge,
        help: "Bytes of the log to replay at a start; only with --dir, as all metrics of log and \
         snapshots",
        tell: |server, samples| match durability(server) {
            Some(figures) => samples.value(figures.log_bytes as f64),
            None => Ok(()),
        },
    },
    Figure {
        name: "log_written_bytes",
        kind: Kind::Counter,
        help: "Bytes written to the log",
        tell: |server, samples| match durability(server) {
            Some(figures) => samples.value(figures.log_bytes_total as f64),
            None => Ok(()),
        },
    },
    Figure {
        name: "log_records",
        kind: Kind::Counter,
        help: "Changes written to the log since the data folder was created",
        tell: |server, samples| match durability(server) {
            Some(figures) => samples.value(figures.records as f64),
            None => Ok(()),
        },
    },
    Figure {
        name: "log_syncs",
        kind: Kind::Counter,
        help: "Syncs of the log",
        tell: |server, samples| match durability(server) {
            Some(figures) => samples.value(figures.syncs as f64),
            None => Ok(()),
        },
    },
    Figure {
        name: "log_failing",
        kind: Kind::Gauge,
        help: "1 if the log cannot be written, and changes are refused",
        tell: |server, samples| match durability(server) {
            Some(figures) => samples.value(figures.trouble.is_some().into()),
            None => Ok(()),
        },
    },
    Figure {
        name: "snapshot_running",
        kind: Kind::Gauge,
        help: "1 while a snapshot is taken",
        tell: |server, samples| match durability(server) {
            Some(figures) => samples.value(figures.is_saving.into()),
            None => Ok(()),
        },
    },
    Figure {
        name: "snapshot_failed",
        kind: Kind::Gauge,
        help: "1 if the last snapshot failed",
        tell: |server, samples| match durability(server) {
            Some(figures) => samples.value(figures.status.error.is_some().into()),
            None => Ok(()),
        },
    },
    Figure {
        name: "snapshot_timestamp_seconds",
        kind: Kind::Gauge,
        help: "Time of the last complete snapshot, since 1970; 0 if none since the start",
        tell: |server, samples| match durability(server) {
            Some(figures) => samples.value((figures.status.saved / 1000) as f64),
            None => Ok(()),
        },
    },
    Figure {
        name: "snapshot_duration_seconds",
        kind: Kind::Gauge,
        help: "Duration of the last snapshot",
        tell: |server, samples| match durability(server) {
            Some(figures) => samples.value(figures.status.done.millis as f64 / 1e3),
            None => Ok(()),
        },
    },
    Figure {
        name: "snapshot_filters",
        kind: Kind::Gauge,
        help: "Filters in the last snapshot that had changed",
        tell: |server, samples| match durability(server) {
            Some(figures) => samples.value(figures.status.done.filters as f64),
            None => Ok(()),
        },
    },
    Figure {
        name: "snapshot_bytes",
        kind: Kind::Gauge,
        help: "Bytes written by the last snapshot",
        tell: |server, samples| match durability(server) {
            Some(figures) => samples.value(figures.status.done.bytes as f64),
            None => Ok(()),
        },
    },
    Figure {
        name: "store_up",
        kind: Kind::Gauge,
        help: "1 if the last request reached the store of --store, else 0",
        tell: |server, samples| match server.stored() {
            Some(stored) => samples.value(f64::from(u8::from(stored.trouble().is_none()))),
            None => Ok(()),
        },
    },
    Figure {
        name: "store_requests",
        kind: Kind::Counter,
        help: "Requests to the store",
        tell: |server, samples| match server.stored() {
            Some(stored) => samples.count(&stored.figures().requests),
            None => Ok(()),
        },
    },
    Figure {
        name: "store_failures",
        kind: Kind::Counter,
        help: "Requests that failed at the store, or found lost bits",
        tell: |server, samples| match server.stored() {
            Some(stored) => samples.count(&stored.figures().failures),
            None => Ok(()),
        },
    },
    Figure {
        name: "store_request_seconds",
        kind: Kind::Counter,
        help: "Time spent in requests to the store",
        tell: |server, samples| match server.stored() {
            Some(stored) => {
                let nanos = stored.figures().nanos.load(Ordering::Relaxed);
                samples.value(nanos as f64 / 1e9)
            }
            None => Ok(()),
        },
    },
];

fn durability(server: &Server) -> Option<persist::StoreFigures> {
    server.store().map(|store| store.figures())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::Config;

    #[test]
    fn every_figure_has_a_name_and_a_help_of_its_own() {
        let mut seen = HashSet::new();
        for figure in FIGURES {
            assert!(seen.insert(figure.name) && seen.insert(figure.help), "{}", figure.name);
            assert!(!figure.name.ends_with("_total"), "{}: the encoder adds it", figure.name);
        }
    }

    #[test]
    fn whole_numbers_have_no_point_and_what_is_not_there_is_not_told() {
        let mut config = Config::default();
        config.settings.max_memory = u64::MAX;
        let server = Arc::new(Server::new(config));
        server.statistics.bytes_in.store(5, Ordering::Relaxed);
        let text = text(&server, Format::OpenMetrics);
        assert!(text.contains("\ninbloom_received_bytes_total 5\n"), "{text}");
        assert!(!text.contains("\ninbloom_memory_limit_bytes "), "{text}");
        assert!(text.contains("\n# UNIT inbloom_memory_limit_bytes bytes\n"), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }

    /// The rules of `promtool check metrics`.
    #[test]
    fn in_the_plain_format_every_sample_is_described_under_its_own_name() {
        let server = Arc::new(Server::new(Config::default()));
        let text = text(&server, Format::Plain);
        let (mut help, mut kind) = (HashSet::new(), std::collections::HashMap::new());
        let mut samples = 0;
        for line in text.lines() {
            match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
                ["#", "HELP", name, text] => {
                    assert!(!text.is_empty() && help.insert(name), "{line}");
                }
                ["#", "TYPE", name, text] => {
                    assert!(kind.insert(name, text).is_none(), "{line}");
                    assert_eq!(name.ends_with("_total"), text == "counter", "{line}");
                }
                ["#", ..] => panic!("{line}"),
                _ => {
                    let name = line.split(['{', ' ']).next().unwrap();
                    assert!(help.contains(name) && kind.contains_key(name), "{line}");
                    samples += 1;
                }
            }
        }
        assert_eq!((help.len(), kind.len()), (FIGURES.len(), FIGURES.len()));
        assert!(samples > 15, "{text}");
    }

    #[test]
    fn figures_are_in_the_format_that_is_asked_for() {
        let prometheus_2 = "application/openmetrics-text;version=1.0.0,\
                            application/openmetrics-text;version=0.0.1;q=0.75,\
                            text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (header, format) in [
            ("", Format::Plain),
            ("*/*", Format::Plain),
            ("text/plain", Format::Plain),
            ("text/plain;version=0.0.4, application/openmetrics-text;q=0.5", Format::Plain),
            ("application/openmetrics-text; version=1.0.0", Format::OpenMetrics),
            ("application/openmetrics-text;q=0, */*", Format::Plain),
            (prometheus_2, Format::OpenMetrics),
        ] {
            assert_eq!(Format::accepted(header), format, "{header}");
        }
    }
}
