//! HTTP: `/metrics` for Prometheus, `/healthz` for supervisors, the JSON API under `/api/`, and
//! the page.
//!
//! It has a thread of its own, so that it answers while all others are busy, and from before filters are
//! loaded until the server has stopped. What takes longer than a moment (a list of a million filters, a look
//! at all bits of one) is done on further threads, two at a time, so that monitors never wait for it. A
//! connection is for one request, and not for long: clients that send nothing keep no monitor out.
//!
//! `/metrics` and `/healthz` answer everybody: they name no filter and change nothing. `guard.rs` says who
//! gets anything else.

mod advice;
mod api;
mod filter;
mod filters;
mod guard;
mod health;
pub mod names;
pub mod page;
mod parameters;
mod plan;

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::Semaphore;

use crate::clock::now;
use crate::metrics;
use crate::server::Server;
use api::{ApiCall, ApiError};
use filter::Scans;
use guard::Ends;

/// The time for the head of a request to arrive.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time for a whole request and its answer.
const WHOLE: Duration = Duration::from_secs(30);
/// Connections at once; more have to wait.
const PLACES: usize = 64;
/// Requests of the API that are worked on at once.
const WORKERS: usize = 2;
/// Bytes of a body.
const LONGEST_BODY: usize = 64 << 10;

/// What all requests share.
struct Shared {
    server: Arc<Server>,
    workers: Semaphore,
    scans: Scans,
}

/// Answers requests at `listener`, on a thread of its own, until the process ends.
///
/// # Errors
///
/// The system gives no thread.
pub fn start(listener: TcpListener, server: &Arc<Server>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let server = Arc::clone(server);
    let shared = Shared { server, workers: Semaphore::new(WORKERS), scans: Scans::default() };
    let work = move || {
        if let Err(error) = runtime.block_on(serve(listener, Arc::new(shared))) {
            tracing::error!(%error, "stopped serving --http");
        }
    };
    std::thread::Builder::new().name("http".into()).spawn(work)?;
    Ok(())
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(PLACES));
    tokio::spawn(take_samples(Arc::clone(&shared.server)));
    let router = router(shared);
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("it is never closed");
        let (stream, client) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept an HTTP client");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let ends = Ends { client, server: stream.local_addr().ok() };
        let service = TowerToHyperService::new(router.clone().layer(Extension(ends)));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async move {
            match tokio::time::timeout(WHOLE, connection).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "HTTP request failed"),
                Err(_) => tracing::debug!("HTTP client timed out"),
            }
            drop(place);
        });
    }
}

/// Takes samples of the filters that somebody looks at.
async fn take_samples(server: Arc<Server>) {
    let mut ticks = tokio::time::interval(Duration::from_millis(500));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        server.history.sample(now());
    }
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/healthz", get(health))
        .route("/metrics", get(figures))
        .fallback(answer)
        .with_state(shared)
}

/// 200 if it serves; 503 and the reason if it is not yet, no longer, or not all of it.
async fn health(State(shared): State<Arc<Shared>>) -> (StatusCode, String) {
    match shared.server.troubles() {
        None => (StatusCode::OK, "ok\n".into()),
        Some(troubles) => (StatusCode::SERVICE_UNAVAILABLE, format!("{troubles}\n")),
    }
}

async fn figures(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> impl IntoResponse {
    let accepted: Vec<&str> =
        headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let format = metrics::Format::accepted(&accepted.join(","));
    ([(header::CONTENT_TYPE, format.content_type())], metrics::text(&shared.server, format))
}

/// Answers the page and the API.
async fn answer(
    State(shared): State<Arc<Shared>>,
    Extension(ends): Extension<Ends>,
    request: Request,
) -> Response {
    let (head, body) = request.into_parts();
    let headers = head.headers.clone();
    let answered = match guard::check_host(&shared.server, &head.uri, &head.headers) {
        Err(error) => Err(error),
        Ok(_) if !head.uri.path().starts_with("/api/") => page(&head),
        Ok(_) => answer_api(shared, ends, head, body).await,
    };
    let mut response = answered.unwrap_or_else(|error| refuse(error, &headers));
    guard::harden(response.headers_mut());
    response
}

fn page(head: &axum::http::request::Parts) -> Result<Response, ApiError> {
    if !matches!(head.method, Method::GET | Method::HEAD) {
        let message = "the page takes GET and HEAD";
        let error = ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method", message);
        return Err(error.with("allow", "GET, HEAD".into()));
    }
    let file = page::find(head.uri.path());
    let missing = || ApiError::not_found("not found: the page is at /");
    file.map(|file| file.answer(&head.headers)).ok_or_else(missing)
}

async fn answer_api(
    shared: Arc<Shared>,
    ends: Ends,
    head: axum::http::request::Parts,
    body: Body,
) -> Result<Response, ApiError> {
    let host = guard::check_host(&shared.server, &head.uri, &head.headers)?;
    guard::check_origin(&head.method, host, &head.headers)?;
    let caller = guard::identify(&shared.server, ends, &head.headers)?;
    let body = to_bytes(body, LONGEST_BODY).await.map_err(|_| {
        let message = format!("the body is larger than {LONGEST_BODY} bytes, or did not arrive");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    })?;
    let _worker = shared.workers.acquire().await.expect("it is never closed");
    let work = {
        let shared = Arc::clone(&shared);
        move || {
            let call = ApiCall {
                server: &shared.server,
                scans: &shared.scans,
                caller,
                method: head.method,
                path: head.uri.path().strip_prefix("/api/").unwrap_or_default(),
                query: head.uri.query().unwrap_or_default(),
                body: &body,
            };
            api::answer(&call).map(|value| value.to_string())
        }
    };
    let done = tokio::task::spawn_blocking(work).await;
    let text = done.map_err(|_| {
        let message = "the request failed: see the log of the server";
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    })??;
    Ok(json_response(StatusCode::OK, text))
}

fn json_response(status: StatusCode, text: String) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (status, headers, text + "\n").into_response()
}

/// The answer to a request that has none.
fn refuse(error: ApiError, request: &HeaderMap) -> Response {
    let status = error.status;
    let allow = error.extra.get("allow").and_then(|value| value.as_str()).map(str::to_owned);
    let mut response = json_response(status, error.body().to_string());
    let headers = response.headers_mut();
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, guard::challenge(request));
    }
    if let Some(allow) = allow.and_then(|allow| HeaderValue::try_from(allow).ok()) {
        headers.insert(header::ALLOW, allow);
    }
    response
}
