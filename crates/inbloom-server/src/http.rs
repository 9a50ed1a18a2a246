//! What monitors ask over HTTP: `/metrics` for Prometheus, `/healthz` for whoever restarts servers.
//!
//! Both only tell; nothing can be changed here, and no name of a key is told. It has a thread of its
//! own, so that it answers while all others are busy, and from before filters are loaded until the
//! server has stopped. A connection is for one request, and not for long: whoever says nothing keeps
//! no monitor out.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::Semaphore;

use crate::metrics;
use crate::server::Server;

/// The time for a request to arrive.
const PATIENCE: Duration = Duration::from_secs(2);
/// Connections at once; more have to wait.
const PLACES: usize = 64;

/// Answers requests at `listener`, on a thread of its own, until the process ends.
pub fn start(listener: TcpListener, server: &Arc<Server>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let router = router(Arc::clone(server));
    let work = move || {
        if let Err(error) = runtime.block_on(serve(listener, router)) {
            tracing::error!(%error, "nobody answers at --http any more");
        }
    };
    std::thread::Builder::new().name("http".into()).spawn(work)?;
    Ok(())
}

async fn serve(listener: TcpListener, router: Router) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(PLACES));
    let service = TowerToHyperService::new(router);
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("it is never closed");
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "could not accept a monitor");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service.clone());
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a monitor was not answered");
            }
            drop(place);
        });
    }
}

fn router(server: Arc<Server>) -> Router {
    Router::new()
        .route("/", get(|| async { "inbloom: /metrics for Prometheus, /healthz for monitors\n" }))
        .route("/healthz", get(health))
        .route("/metrics", get(figures))
        .with_state(server)
}

/// 200 if it serves; 503 and the reason if it is not yet, no longer, or not all of it.
async fn health(State(server): State<Arc<Server>>) -> (StatusCode, String) {
    match server.troubles() {
        None => (StatusCode::OK, "ok\n".into()),
        Some(troubles) => (StatusCode::SERVICE_UNAVAILABLE, format!("{troubles}\n")),
    }
}

async fn figures(State(server): State<Arc<Server>>, headers: HeaderMap) -> impl IntoResponse {
    let accepted: Vec<&str> =
        headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let format = metrics::Format::accepted(&accepted.join(","));
    ([(header::CONTENT_TYPE, format.content_type())], metrics::text(&server, format))
}
