//! `/api/filters/{name}`: one filter, its history, a test of a key, an added key.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use inbloom::Span as WindowSpan;
use inbloom::interop::redisbloom::Hash;
use parking_lot::Mutex;
use serde_json::{Map, Value as Json, json};

use super::advice::{advise, full_in};
use super::api::{ApiCall, ApiError, NamedFilter, seconds};
use super::filters::per_second;
use super::names;
use super::parameters::Parameters;
use crate::calculator::probes;
use crate::clock::now;
use crate::commands::bloom;
use crate::history::{Activity, Reach, Sample};
use crate::keyspace::Entry;
use crate::server::Server;
use crate::value::Value;
use crate::value::change::{Items, Refusal};
use crate::value::summary::{BitScan, Layer, Summary};

/// Slices of the heat strip.
const SLICES: usize = 128;
/// Bytes of a key that is tested or added.
const LONGEST_KEY: usize = 16 << 10;

/// Shows a filter, and keeps its history from now on.
pub fn show(call: &ApiCall<'_>, found: &NamedFilter) -> Result<Json, ApiError> {
    let (server, entry, time) = (call.server, &found.entry, now());
    let look = server.history.look(entry, time);
    if let Value::Filter(guarded) = &entry.value {
        guarded.follow_clock(time);
    }
    let summary = Summary::of(&entry.value);
    let (scan, measured) = call.scans.get(found, time);
    let now_seconds = time as f64 / 1000.0;
    let forecast = look.growth.map(|growth| {
        let left = full_in(&summary, Some(growth));
        json!({
            "keys_per_second": growth.keys_per_second,
            "over_seconds": growth.seconds,
            "full_in_seconds": left,
            "full_at": left.map(|left| now_seconds + left),
        })
    });
    let details = Details::of(server, &entry.value);
    let settings = server.settings();
    let limit = |bytes: u64| (bytes != u64::MAX).then_some(bytes);
    let mut object = Map::new();
    names::insert(&mut object, &found.name);
    let fields = json!({
        "database": found.database,
        "kind": summary.kind,
        "now": now_seconds,
        "expires": entry.expires().and_then(seconds),
        "hash": details.hash,
        "probes": details.probes,
        "cache_lines": details.cache_lines,
        "keys": summary.keys,
        "estimated_keys": scan.estimated_keys,
        "capacity": summary.capacity,
        "used": summary.used(),
        "grows": summary.grows,
        "static": summary.is_fixed,
        "read_only": details.is_read_only,
        "file": details.file,
        "fill": scan.fill,
        "rate": scan.rate,
        "target_rate": summary.target_rate,
        "memory": server.keyspace.bytes_of(&found.name, entry),
        "bytes": entry.value.size(),
        "memory_limit": {
            "filter": limit(settings.max_filter),
            "all": limit(settings.max_memory),
            "used": server.limits.in_use(),
        },
        "auto_clear": details.auto_clear,
        "layers": scan.layers.iter().map(layer).collect::<Vec<_>>(),
        "generations": details.generations,
        "strip": strip(&scan, measured),
        "counters": counters(&look),
        "per_second": per_second(&look.speed),
        "forecast": forecast,
        "advice": advise(&summary, &scan, look.growth, now_seconds),
        "writable": !summary.is_fixed && call.caller.check_write(server).is_ok(),
    });
    let Json::Object(fields) = fields else { unreachable!("written as one") };
    object.extend(fields);
    Ok(Json::Object(object))
}

fn layer(layer: &Layer) -> Json {
    let Layer { kind, keys, capacity, bytes, fill, rate } = *layer;
    json!({
        "kind": kind, "keys": keys, "capacity": capacity, "bytes": bytes, "fill": fill, "rate": rate
    })
}

fn strip(scan: &BitScan, measured: u64) -> Option<Json> {
    let first = scan.slices.first()?;
    // Four digits are more than a strip can show, and a third of the bytes.
    let fill = |fill: f64| (fill * 1e4).round() / 1e4;
    let out: Vec<usize> =
        (0..scan.slices.len()).filter(|at| scan.slices[*at].stands_out()).collect();
    Some(json!({
        "measured": seconds(measured),
        "expected": first.expected,
        "fill": scan.slices.iter().map(|slice| fill(slice.fill)).collect::<Vec<_>>(),
        "stands_out": out,
    }))
}

fn counters(look: &Activity) -> Json {
    json!({
        "since": seconds(look.since),
        "added": look.counts.added,
        "new": look.counts.new,
        "asked": look.counts.asked,
        "hits": look.counts.hits,
    })
}

/// What only some filters have.
#[derive(Default)]
struct Details {
    hash: &'static str,
    probes: Option<u32>,
    cache_lines: Option<u32>,
    is_read_only: bool,
    file: Option<String>,
    auto_clear: Option<f64>,
    generations: Option<Json>,
}

impl Details {
    fn of(server: &Server, value: &Value) -> Details {
        match value {
            Value::Bloom(bloom) => {
                let plan = bloom.base().plan();
                Details {
                    hash: server.hasher.name(),
                    probes: probes(plan),
                    cache_lines: Some(plan.cache_lines()),
                    ..Details::default()
                }
            }
            Value::Filter(guarded) => {
                let file = guarded.origin().map(str::to_owned);
                guarded.read(|filter| Details {
                    hash: filter.hasher().name(),
                    probes: probes(filter.plan()),
                    cache_lines: Some(filter.plan().cache_lines()),
                    is_read_only: filter.is_read_only(),
                    file,
                    auto_clear: filter.auto_clear(),
                    generations: generations(filter),
                })
            }
            Value::RedisBloom(guarded) => Details {
                hash: "murmur64a",
                probes: guarded.read(|bloom| bloom.links().next().map(|link| link.hashes)),
                ..Details::default()
            },
            Value::Cuckoo(_) => Details { hash: "murmur64a", ..Details::default() },
        }
    }
}

fn generations(filter: &inbloom::Filter) -> Option<Json> {
    let (span_seconds, span_keys) = match filter.plan().span()? {
        WindowSpan::Millis(millis) => (Some(millis as f64 / 1000.0), None),
        WindowSpan::Items(items) => (None, Some(items)),
    };
    let time = now();
    let age = |began: u64| time.saturating_sub(began) as f64 / 1000.0;
    let steps = filter.window_steps().into_iter().map(|step| {
        let age = step.began.filter(|_| span_seconds.is_some()).map(age);
        json!({ "age_seconds": age, "keys": step.items, "fill": step.fill })
    });
    let steps: Vec<Json> = steps.collect();
    Some(json!({ "span_seconds": span_seconds, "span_keys": span_keys, "steps": steps }))
}

/// The last scans of filters. A page asks each second, and a large filter takes longer to read than that
/// is worth: a scan is made again after a second, and after a hundred times what it took, so that scans
/// take one percent of a processor.
#[derive(Default)]
pub struct Scans(Mutex<Vec<KeptScan>>);

struct KeptScan {
    id: u64,
    at: u64,
    again: Instant,
    scan: Arc<BitScan>,
}

/// Scans that are kept: more than anybody looks at.
const KEPT: usize = 16;
/// A scan is made again after so many times what it took.
const REST: u32 = 100;

impl Scans {
    /// A scan of a filter, and when it was made, in milliseconds since 1970.
    fn get(&self, found: &NamedFilter, time: u64) -> (Arc<BitScan>, u64) {
        let id = found.entry.id;
        let begin = Instant::now();
        let kept = self
            .0
            .lock()
            .iter()
            .find(|it| it.id == id && begin < it.again)
            .map(|it| (Arc::clone(&it.scan), it.at));
        if let Some(kept) = kept {
            return kept;
        }
        let scan = Arc::new(BitScan::of(&found.entry.value, SLICES));
        let again = Instant::now() + (begin.elapsed() * REST).max(Duration::from_millis(500));
        let mut all = self.0.lock();
        all.retain(|it| it.id != id);
        if all.len() == KEPT {
            all.remove(0);
        }
        all.push(KeptScan { id, at: time, again, scan: Arc::clone(&scan) });
        (scan, time)
    }
}

/// Answers the samples of a filter.
pub fn history(
    call: &ApiCall<'_>,
    found: &NamedFilter,
    parameters: &mut Parameters,
) -> Result<Json, ApiError> {
    let spans = [("15m", ("15m", Reach::Quarter)), ("24h", ("24h", Reach::Day))];
    let (name, span) = parameters.choice("span", &spans)?.unwrap_or(spans[0].1);
    let since = parameters.number("since", 0..=u64::MAX)?.unwrap_or(0);
    call.server.history.look(&found.entry, now());
    let series = call.server.history.series(&found.entry, span, since);
    let series = series.ok_or_else(|| {
        let message = "too many filters are being viewed: try again";
        ApiError::new(StatusCode::CONFLICT, "refused", message)
    })?;
    let column = |value: fn(&Sample) -> Json| -> Vec<Json> {
        let value = |sample: &Sample| if sample.is_there() { value(sample) } else { Json::Null };
        series.samples.iter().map(value).collect()
    };
    Ok(json!({
        "span": name,
        "step_seconds": span.step(),
        "first": series.first,
        "next": series.first + series.samples.len() as u64,
        "time": series.time as f64 / 1000.0,
        "added": column(|sample| json!(sample.added)),
        "asked": column(|sample| json!(sample.asked)),
        "hits": column(|sample| json!(sample.hits)),
        "keys": column(|sample| json!(sample.keys)),
        "rate": column(|sample| json!(sample.rate)),
    }))
}

/// Asks a filter for a key, and shows where it looked. It does not count as a query.
pub fn test(
    call: &ApiCall<'_>,
    found: &NamedFilter,
    parameters: &mut Parameters,
) -> Result<Json, ApiError> {
    let key = match (parameters.bytes("key"), parameters.text("key_base64")?) {
        (Some(key), None) => key,
        (None, Some(text)) => decode_key(&text)?,
        _ => return Err(ApiError::parameter("key", "pass the key as 'key' or 'key_base64'")),
    };
    check_length(&key)?;
    let value = &found.entry.value;
    let (layers, positions, cells) = match value {
        Value::Bloom(bloom) => {
            let digest = call.server.hasher.digest(&key);
            let rest = bloom.rest().map(|rest| rest.contains(digest));
            let layers = [Some(bloom.base().contains(digest)), rest];
            let positions = bloom.base().positions(digest);
            (layers, Some(positions), Some(bloom.base().plan().bits()))
        }
        Value::Filter(guarded) => {
            guarded.follow_clock(now());
            guarded.read(|filter| {
                let is_set = |at: u64| (at, filter.contains_positions(&[at]));
                let positions = filter.positions(&*key).ok();
                let positions = positions.map(|all| all.into_iter().map(is_set).collect());
                let cells = filter.plan().kind().has_probes().then(|| filter.plan().bits());
                ([Some(filter.contains(&*key)), None], positions, cells)
            })
        }
        Value::RedisBloom(guarded) => {
            ([Some(guarded.read(|bloom| bloom.contains(&key))), None], None, None)
        }
        Value::Cuckoo(guarded) => {
            ([Some(guarded.read(|cuckoo| cuckoo.contains(&key))), None], None, None)
        }
    };
    let positions = positions.map(|all: Vec<(u64, bool)>| {
        let position = |(position, set)| json!({ "position": position, "set": set });
        all.into_iter().map(position).collect::<Vec<_>>()
    });
    let layer = layers.iter().position(|found| *found == Some(true));
    Ok(json!({
        "present": layer.is_some(),
        "certain": layer.is_none(),
        "layer": layer,
        "rate": call.scans.get(found, now()).0.rate,
        "cells": cells.filter(|_| positions.is_some()),
        "positions": positions,
    }))
}

/// Adds a key to a filter, as BF.ADD and CF.ADD do.
pub fn add(call: &ApiCall<'_>, found: &NamedFilter) -> Result<Json, ApiError> {
    let body: Map<String, Json> = serde_json::from_slice(call.body)
        .map_err(|error| ApiError::request(format!("the body is not a JSON object: {error}")))?;
    let text = |name: &str| body.get(name).and_then(Json::as_str);
    let key = match (text("key"), text("key_base64"), body.len()) {
        (Some(key), None, 1) => key.as_bytes().to_vec(),
        (None, Some(text), 1) => decode_key(text)?,
        _ => {
            let message = "the body must have 'key' or 'key_base64', a string, and nothing else";
            return Err(ApiError::request(message));
        }
    };
    check_length(&key)?;
    let refused = |text: &str| ApiError::new(StatusCode::CONFLICT, "refused", text);
    if let Some(trouble) = call.server.trouble() {
        return Err(refused(trouble.text()));
    }
    let is_new = add_one(call.server, &found.entry, &key);
    let is_new = is_new.map_err(|refusal| refused(bloom::refused(call.server, refusal).text()))?;
    call.server.statistics.count_added(1);
    // An answer is good when the log is kept, as on the other port.
    if let Some(log) = call.server.log() {
        log.commit_here(log.last()).map_err(|failure| refused(failure.text()))?;
    }
    Ok(json!({ "new": is_new, "keys": Summary::of(&found.entry.value).keys }))
}

fn add_one(server: &Server, entry: &Entry, key: &[u8]) -> Result<bool, Refusal> {
    let mut new = Vec::new();
    match &entry.value {
        Value::Bloom(_) => {
            server.apply(entry, Items::Add(&[server.hasher.digest(key)]), &mut new)?;
        }
        Value::Filter(guarded) => {
            let digests = &[guarded.hasher().digest(key)];
            server.apply(entry, Items::Insert { digests, time: now() }, &mut new)?;
        }
        Value::RedisBloom(guarded) => {
            let pair = guarded.read(|bloom| bloom.pair(key));
            server.apply(entry, Items::AddPairs(&[pair]), &mut new)?;
        }
        Value::Cuckoo(_) => server.apply(entry, Items::AddHashes(&[Hash::of(key)]), &mut new)?,
    }
    Ok(new[0])
}

fn decode_key(text: &str) -> Result<Vec<u8>, ApiError> {
    let decoded = names::base64_decode(text, names::STANDARD);
    decoded.ok_or_else(|| ApiError::parameter("key_base64", "'key_base64' is not base64"))
}

fn check_length(key: &[u8]) -> Result<(), ApiError> {
    if key.len() <= LONGEST_KEY {
        return Ok(());
    }
    let message = format!("the key has {} bytes, the limit is {LONGEST_KEY}", key.len());
    Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message))
}
