//! The JSON API: which address is answered by what. docs/http-api.md describes it.
//!
//! Nothing here knows of sockets: a [`ApiCall`] comes in that [`guard`](super::guard) has let through, and a
//! JSON value or an [`ApiError`] goes out.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use super::filter::Scans;
use super::parameters::Parameters;
use super::{filter, filters, health, names, plan};
use crate::clock::now;
use crate::health::LOADING;
use crate::keyspace::{DATABASES, Entry, Key};
use crate::server::Server;
use crate::users::{Class, Identity};
use crate::value::take_found;

/// Why a request has no answer.
#[derive(Debug)]
pub struct ApiError {
    /// The status of HTTP.
    pub status: StatusCode,
    /// A word that programs can compare.
    pub code: &'static str,
    /// What happened, and what to do.
    pub message: String,
    /// More about it, for programs.
    pub extra: Map<String, Value>,
}

impl ApiError {
    /// One without more about it.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, code, message: message.into(), extra: Map::new() }
    }

    /// A parameter that cannot be read.
    pub fn parameter(name: &str, message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "bad_value", message).with("parameter", json!(name))
    }

    /// A request that cannot be read.
    pub fn request(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    /// Nothing is there.
    pub fn not_found(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// The same, with something more.
    pub fn with(mut self, name: &str, value: Value) -> ApiError {
        self.extra.insert(name.to_owned(), value);
        self
    }

    /// The body of the answer.
    pub fn body(self) -> Value {
        let mut error = self.extra;
        error.insert("code".to_owned(), json!(self.code));
        error.insert("message".to_owned(), json!(self.message));
        json!({ "error": error })
    }
}

/// What may be asked of an address.
const READ: [Method; 2] = [Method::GET, Method::HEAD];

/// Who asks.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The user; None: nobody yet.
    pub identity: Option<Identity>,
    /// Whether a password was asked for, and was right.
    pub has_logged_in: bool,
}

impl Caller {
    /// Whether the role of the user allows commands of a class.
    pub fn may(&self, class: Class) -> bool {
        self.identity.as_ref().is_some_and(|identity| identity.role.may(class))
    }

    /// Refuses a user whose role does not allow commands of a class.
    fn check(&self, class: Class) -> Result<(), ApiError> {
        let Some(identity) = &self.identity else {
            return Err(ApiError::new(
                StatusCode::UNAUTHORIZED,
                "login",
                "log in: send a user and a password (Authorization: Basic)",
            ));
        };
        if identity.role.may(class) {
            return Ok(());
        }
        let role = identity.role.name();
        let message =
            format!("the role of user '{}' is {role}, which may not do this", identity.name);
        Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden", message).with("role", json!(role)))
    }

    /// Refuses to change anything, unless the server allows it and the caller has logged in as a user who
    /// may.
    pub fn check_write(&self, server: &Server) -> Result<(), ApiError> {
        let forbidden = |code, message: &str| ApiError::new(StatusCode::FORBIDDEN, code, message);
        if !server.config.http.can_write {
            let message = "the HTTP API is read-only: start the server with --http-write";
            return Err(forbidden("read_only", message));
        }
        if !self.has_logged_in {
            let message = "log in to write: the user needs a password (--password, --users)";
            return Err(forbidden("needs_login", message));
        }
        self.check(Class::Write)
    }
}

/// A request of the API.
pub struct ApiCall<'a> {
    /// The server.
    pub server: &'a Arc<Server>,
    /// What was read of filters lately.
    pub scans: &'a Scans,
    /// Who asks.
    pub caller: Caller,
    /// How.
    pub method: Method,
    /// The path behind `/api/`, as it came.
    pub path: &'a str,
    /// The query, as it came.
    pub query: &'a str,
    /// The body of a POST.
    pub body: &'a [u8],
}

/// Answers a request.
///
/// # Errors
///
/// The reply instead.
pub fn answer(call: &ApiCall<'_>) -> Result<Value, ApiError> {
    let mut parameters = Parameters::parse(call.query)?;
    let segments: Vec<&str> = call.path.split('/').collect();
    take_found(); // Of what this thread did before.
    let result = match segments[..] {
        ["session"] => {
            check_method(call, &READ)?;
            session(call)
        }
        ["plan"] => {
            check_read(call)?;
            plan::answer(&mut parameters)?
        }
        ["health"] => {
            check_read(call)?;
            health::report(call)
        }
        ["filters"] => {
            check_read(call)?;
            check_filters(call.server)?;
            filters::list(call.server, &mut parameters)?
        }
        ["filters", name] => {
            check_read(call)?;
            filter::show(call, &find(call, name, &mut parameters)?)?
        }
        ["filters", name, "history"] => {
            check_read(call)?;
            let found = find(call, name, &mut parameters)?;
            filter::history(call, &found, &mut parameters)?
        }
        ["filters", name, "test"] => {
            check_read(call)?;
            let found = find(call, name, &mut parameters)?;
            filter::test(call, &found, &mut parameters)?
        }
        ["filters", name, "add"] => {
            check_method(call, &[Method::POST])?;
            call.caller.check_write(call.server)?;
            filter::add(call, &find(call, name, &mut parameters)?)?
        }
        _ => {
            let message = format!("no /api/{}: see docs/http-api.md", excerpt(call.path));
            return Err(ApiError::not_found(message));
        }
    };
    // A mapped file that has changed: what was read of it is not returned.
    if let Some(failure) = take_found() {
        return Err(ApiError::new(StatusCode::CONFLICT, "refused", failure.text()));
    }
    parameters.check_rest()?;
    Ok(result)
}

fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}

fn check_method(call: &ApiCall<'_>, allowed: &[Method]) -> Result<(), ApiError> {
    if allowed.contains(&call.method) {
        return Ok(());
    }
    let names: Vec<&str> = allowed.iter().map(Method::as_str).collect();
    let names = names.join(", ");
    let message = format!("{} is not allowed for this address, which takes {names}", call.method);
    let error = ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method", message);
    Err(error.with("allow", json!(names)))
}

fn check_read(call: &ApiCall<'_>) -> Result<(), ApiError> {
    check_method(call, &READ)?;
    call.caller.check(Class::Read)
}

/// Refuses what needs filters while they are loaded, or where they are on a store.
fn check_filters(server: &Server) -> Result<(), ApiError> {
    if server.stored().is_some() {
        let message = "the filters are on a store (--store): use a Redis client or 'inbloom info'";
        return Err(ApiError::new(StatusCode::NOT_IMPLEMENTED, "store", message));
    }
    if !server.health.suffers(LOADING) {
        return Ok(());
    }
    let message = "filters are still being loaded: try again later";
    Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "loading", message))
}

/// A filter that a path names.
pub struct NamedFilter {
    /// Its database.
    pub database: usize,
    /// Its name.
    pub name: Vec<u8>,
    /// What the name stands for.
    pub entry: Arc<Entry>,
}

fn find(
    call: &ApiCall<'_>,
    segment: &str,
    parameters: &mut Parameters,
) -> Result<NamedFilter, ApiError> {
    check_filters(call.server)?;
    let database = database(parameters)?;
    let name = names::read(segment).ok_or_else(|| {
        ApiError::request("the name in the path is not percent-encoded, or not base64url after '='")
    })?;
    let entry = call.server.keyspace.get(Key { database, name: &name }, now());
    let entry = entry.ok_or_else(|| {
        let shown = names::text(&name);
        ApiError::not_found(format!("no filter \"{shown}\" in database {database}"))
    })?;
    Ok(NamedFilter { database, name, entry })
}

/// Reads the parameter `db`.
pub fn database(parameters: &mut Parameters) -> Result<usize, ApiError> {
    let database = parameters.number("db", 0..=DATABASES as u64 - 1)?;
    Ok(database.unwrap_or(0) as usize)
}

/// Who the caller is and what it may do: asked before anything else, and never refused.
fn session(call: &ApiCall<'_>) -> Value {
    let (server, identity) = (call.server, call.caller.identity.as_ref());
    let settings = server.settings();
    let has_passwords = !settings.require_pass.is_empty() || server.users().file().is_some();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "user": identity.map(|it| &*it.name),
        "role": identity.map(|it| it.role.name()),
        "login": has_passwords,
        "write": call.caller.check_write(server).is_ok(),
        "databases": DATABASES,
    })
}

/// Seconds since 1970 of milliseconds since then; null: never.
pub fn seconds(millis: u64) -> Option<f64> {
    (millis > 0).then_some(millis as f64 / 1000.0)
}

/// A count that others change.
pub fn count(counter: &std::sync::atomic::AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
