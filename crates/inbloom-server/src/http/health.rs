//! `/api/health`: what an operator asks at three in the morning.

use std::cmp::Reverse;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::api::{ApiCall, count, seconds};
use super::filters::databases;
use super::names;
use crate::clients::Client;
use crate::clock::now;
use crate::commands::server::info;
use crate::health::LOADING;
use crate::keyspace::DATABASES;
use crate::over_target::Overfull;
use crate::server::Server;
use crate::statistics::{Calls, SlowCommand};
use crate::units::machine;
use crate::users::Class;

/// Clients, commands, slow commands and filters above their target that are listed.
const CLIENTS: usize = 100;
const COMMANDS: usize = 20;
const SLOW: usize = 32;
const OVER: usize = 20;

/// Reports all of it. Clients and slow commands are for admins, as CLIENT LIST and SLOWLOG GET are.
pub fn report(call: &ApiCall<'_>) -> Value {
    let server = call.server;
    let is_admin = call.caller.may(Class::Admin);
    let (statistics, settings) = (&server.statistics, server.settings());
    let (per_second, time) = (server.rates.now(), now());
    let limit = |bytes: u64| (bytes != u64::MAX).then_some(bytes);
    let (user, system) = info::processor_seconds().unzip();
    let list = is_admin.then(|| clients(server));
    let slow_log = is_admin.then(|| slow_log(server));
    let filters: u64 = (0..DATABASES).map(|database| server.keyspace.len(database)).sum();
    let over: Vec<Value> = server.over_target.worst(OVER).iter().map(overfull).collect();
    json!({
        "status": status(server),
        "troubles": troubles(server),
        "now": seconds(time),
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_seconds": server.started.elapsed().as_secs_f64(),
        "process": { "user_seconds": user, "system_seconds": system },
        "durability": durability(server),
        "memory": {
            "used": server.limits.in_use(),
            "peak": server.limits.peak(),
            "limit": limit(settings.max_memory),
            "filter_limit": limit(settings.max_filter),
            "clients": count(&server.clients.held),
            "clients_limit": limit(settings.max_client_memory),
            "resident": info::resident_bytes(),
            "system": machine::total_memory(),
        },
        "clients": {
            "connected": server.clients.count(),
            "limit": settings.max_clients,
            "accepted": count(&statistics.connections),
            "rejected": count(&statistics.rejected),
            "evicted": count(&server.clients.evicted),
            "unread": count(&statistics.unread),
            "failed_logins": count(&statistics.failed_logins),
            "forbidden": count(&statistics.forbidden),
            "list": list,
        },
        "traffic": {
            "commands": count(&statistics.commands),
            "commands_per_second": per_second.commands,
            "bytes_in_per_second": per_second.bytes_in,
            "bytes_out_per_second": per_second.bytes_out,
            "items_added": count(&statistics.items_added),
            "items_asked": count(&statistics.items_asked),
            "errors": count(&statistics.errors),
        },
        "commands": commands(server),
        "errors": errors(server),
        "slow_log": slow_log,
        "filters": {
            "total": filters,
            "databases": databases(server),
            "expired": server.keyspace.expired(),
            "over_target_count": server.over_target.count(),
            "over_target": over,
        },
    })
}

fn status(server: &Server) -> &'static str {
    if server.is_stopping() {
        "stopping"
    } else if server.health.suffers(LOADING) {
        "loading"
    } else if server.troubles().is_some() {
        "trouble"
    } else {
        "ok"
    }
}

fn troubles(server: &Server) -> Vec<Value> {
    let mut troubles = server.health.list();
    troubles.extend(server.trouble().map(|failure| ("log", failure.text().to_owned())));
    let as_json = |(part, reason)| json!({ "part": part, "reason": reason });
    troubles.into_iter().map(as_json).collect()
}

fn durability(server: &Server) -> Option<Value> {
    let (figures, settings) = (server.store()?.figures(), server.settings());
    let done = &figures.status.done;
    Some(json!({
        "fsync": settings.fsync.name(),
        "last_sync": seconds(figures.synced_at),
        "log_bytes": figures.log_bytes,
        "log_limit": settings.log_limit,
        "log_records": figures.records,
        "unsaved_records": figures.unsaved,
        "syncs": figures.syncs,
        "failing": figures.trouble,
        "snapshot": {
            "running": figures.is_saving,
            "last": seconds(figures.status.saved),
            "seconds": done.millis as f64 / 1000.0,
            "filters": done.filters,
            "bytes": done.bytes,
            "error": figures.status.error,
        },
    }))
}

/// Those that did most first.
fn clients(server: &Server) -> Vec<Value> {
    let mut all: Vec<Arc<Client>> = server.clients.list();
    all.sort_by_key(|client| Reverse(count(&client.commands)));
    all.truncate(CLIENTS);
    let as_json = |client: &Arc<Client>| {
        let state = client.state.lock().clone();
        let idle = state.active.unwrap_or(client.since).elapsed().as_secs_f64();
        json!({
            "id": client.id,
            "address": client.address,
            "user": state.user.as_deref(),
            "name": state.name,
            "library": state.library,
            "library_version": state.library_version,
            "age_seconds": client.since.elapsed().as_secs_f64(),
            "idle_seconds": idle,
            "last": state.last,
            "database": state.database,
            "commands": count(&client.commands),
            "held_bytes": count(&client.held),
        })
    };
    all.iter().map(as_json).collect()
}

/// Those that took most time first.
fn commands(server: &Server) -> Vec<Value> {
    let by_command = server.statistics.by_command.lock();
    let mut all: Vec<(&str, Calls)> = by_command.iter().map(|(name, sum)| (*name, *sum)).collect();
    drop(by_command);
    all.sort_by_key(|(name, sum)| (Reverse(sum.nanos), *name));
    all.truncate(COMMANDS);
    let as_json = |(name, sum): (&str, Calls)| {
        json!({
            "name": name,
            "calls": sum.calls,
            "seconds": sum.nanos as f64 / 1e9,
            "failed": sum.failed,
            "rejected": sum.rejected,
        })
    };
    all.into_iter().map(as_json).collect()
}

fn errors(server: &Server) -> Vec<Value> {
    let by_error = server.statistics.by_error.lock().clone();
    let mut all: Vec<(String, u64)> = by_error.into_iter().collect();
    all.sort_by_key(|(_, count)| Reverse(*count));
    all.into_iter().map(|(code, count)| json!({ "code": code, "count": count })).collect()
}

fn slow_log(server: &Server) -> Vec<Value> {
    let entries: Vec<SlowCommand> =
        server.slow_log.lock().entries.iter().take(SLOW).cloned().collect();
    let as_json = |slow: SlowCommand| {
        json!({
            "id": slow.id,
            "at": slow.at,
            "micros": slow.micros,
            "words": slow.words.iter().map(|word| names::text(word)).collect::<Vec<_>>(),
            "address": slow.address,
            "client": slow.name,
        })
    };
    entries.into_iter().map(as_json).collect()
}

fn overfull(over: &Overfull) -> Value {
    let mut object = Map::new();
    names::insert(&mut object, &over.name);
    if !over.has_name {
        object.insert("path".to_owned(), Value::Null);
    }
    let fields = [
        ("database", json!(over.database)),
        ("rate", json!(over.rate)),
        ("target_rate", json!(over.target)),
        ("since", json!(seconds(over.since))),
    ];
    object.extend(fields.map(|(name, value)| (name.to_owned(), value)));
    Value::Object(object)
}
