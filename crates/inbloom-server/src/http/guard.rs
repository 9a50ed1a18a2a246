//! Who may ask over HTTP: against web pages that make a browser ask, and against everybody who has no
//! password.
//!
//! - **DNS rebinding.** A page of `evil.example` can make its own name lead to 127.0.0.1 and then read
//!   what is there. Its requests still carry `Host: evil.example`. So Host must be an address,
//!   `localhost`, or a name of `--http-host`.
//! - **Requests of other sites.** Browsers say where a request comes from: `Origin` and `Sec-Fetch-Site` must
//!   be those of the page itself, where they are there. No answer has a header that would let other sites read it.
//! - **Forged writes.** A POST must have the header `X-Inbloom` and a body of JSON. A page of another site can
//!   send neither without a question that is never answered with yes.
//! - **Frames, scripts.** Every answer forbids frames, inline scripts and everything from elsewhere.
//! - **Users** are those of the Redis port, by Basic authentication; without any, only clients of the same
//!   machine are answered (protected mode).

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};

use super::api::{ApiError, Caller};
use super::names::{STANDARD, base64_decode};
use crate::server::Server;
use crate::users::{DEFAULT, Identity};

/// The header that only our own page sends. A browser lets no other site send it.
pub const OWN: HeaderName = HeaderName::from_static("x-inbloom");

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What every answer has.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
         connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'; require-trusted-types-for 'script'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Adds what every answer has.
pub fn harden(headers: &mut HeaderMap) {
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// The two ends of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// The client's.
    pub client: SocketAddr,
    /// The server's.
    pub server: Option<SocketAddr>,
}

/// Refuses a request that does not name this server. Returns the host that it names.
///
/// # Errors
///
/// No host, several, or one that is not allowed.
pub fn check_host<'a>(
    server: &Server,
    uri: &'a Uri,
    headers: &'a HeaderMap,
) -> Result<&'a str, ApiError> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(ApiError::request("a request needs exactly one Host header"));
    };
    let refuse = |host: &str| {
        let shown: String = host.chars().take(64).collect();
        let message = format!(
            "the host {shown:?} is not this server: use its address or localhost, or start the \
             server with --http-host NAME"
        );
        ApiError::new(StatusCode::MISDIRECTED_REQUEST, "host", message)
    };
    let host = host.to_str().map_err(|_| refuse("(not ASCII)"))?;
    // The host of a whole address counts more than the header, for those who look at it.
    let named = uri.authority().map(|authority| authority.as_str());
    for host in [Some(host), named].into_iter().flatten() {
        if !is_allowed(host, &server.config.http.hosts) {
            return Err(refuse(host));
        }
    }
    Ok(host)
}

/// Whether a host, with or without a port, is an address, `localhost` or one of these names.
fn is_allowed(host: &str, names: &[String]) -> bool {
    let is_port = |text: &str| text.parse::<u16>().is_ok();
    let name = match host.strip_prefix('[') {
        Some(rest) => {
            let Some((address, after)) = rest.split_once(']') else { return false };
            let has_port = after.strip_prefix(':').is_some_and(is_port);
            return (after.is_empty() || has_port) && matches!(address.parse(), Ok(IpAddr::V6(_)));
        }
        None => match host.split_once(':') {
            Some((name, port)) if is_port(port) => name,
            Some(_) => return false,
            None => host,
        },
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    matches!(name.parse(), Ok(IpAddr::V4(_)))
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|allowed| name.eq_ignore_ascii_case(allowed))
}

/// Refuses a request that a page of another site makes.
///
/// # Errors
///
/// It comes from elsewhere, or is a POST without our header or without a body of JSON.
pub fn check_origin(method: &Method, host: &str, headers: &HeaderMap) -> Result<(), ApiError> {
    let refuse = |code, message: &str| Err(ApiError::new(StatusCode::FORBIDDEN, code, message));
    let cross = "the request comes from a page of another site";
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or(""));
    if let Some(origin) = text(&header::ORIGIN) {
        let own = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        if !own.is_some_and(|own| own.eq_ignore_ascii_case(host)) {
            return refuse("cross_site", cross);
        }
    }
    if text(&SEC_FETCH_SITE).is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return refuse("cross_site", cross);
    }
    if method != Method::POST {
        return Ok(());
    }
    if !headers.contains_key(OWN) {
        return refuse("missing_header", "a POST needs the header 'X-Inbloom: 1'");
    }
    let is_json = text(&header::CONTENT_TYPE)
        .is_some_and(|it| it.split(';').next().unwrap_or("").trim() == "application/json");
    if !is_json {
        return Err(ApiError::request("a POST needs the header 'Content-Type: application/json'"));
    }
    Ok(())
}

/// Finds out who asks.
///
/// # Errors
///
/// A client of another machine in protected mode; a wrong password.
pub fn identify(server: &Server, ends: Ends, headers: &HeaderMap) -> Result<Caller, ApiError> {
    if server.is_protected_from(ends.client.ip(), ends.server.map(|local| local.ip())) {
        let message = "protected mode: only clients on the same machine are served; start the server with \
         --password or --users, or with --no-protected-mode";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "protected_mode", message));
    }
    let (users, settings) = (server.users(), server.settings());
    let required = &settings.require_pass;
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        let identity = users.stranger(required);
        return Ok(Caller { identity, has_logged_in: false });
    };
    let (name, password) = basic(value).ok_or_else(|| {
        ApiError::request("Authorization must be Basic, with the base64 of USER:PASSWORD")
    })?;
    let name = if name.is_empty() { DEFAULT.as_bytes().to_vec() } else { name };
    let identity: Option<Identity> = users.identify(&name, &password, required);
    if identity.is_none() {
        server.count_failed_login(&name, &ends.client.to_string());
        let message = "wrong password or unknown user";
        return Err(ApiError::new(StatusCode::UNAUTHORIZED, "login", message));
    }
    // A user who needs no password has proved nothing by giving one.
    let has_logged_in = users.get(&name, required).is_some_and(|user| !user.is_open());
    Ok(Caller { identity, has_logged_in })
}

/// The user and the password of Basic authentication (RFC 7617).
fn basic(value: &HeaderValue) -> Option<(Vec<u8>, Vec<u8>)> {
    let (scheme, encoded) = value.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = base64_decode(encoded.trim(), STANDARD)?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    Some((decoded[..colon].to_vec(), decoded[colon + 1..].to_vec()))
}

/// What a client is asked for when it has to log in. Our page asks by itself: to `Basic` a browser would open
/// a window of its own.
pub fn challenge(headers: &HeaderMap) -> HeaderValue {
    HeaderValue::from_static(match headers.contains_key(OWN) {
        true => "Inbloom realm=\"inbloom\"",
        false => "Basic realm=\"inbloom\", charset=\"UTF-8\"",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_address_localhost_or_a_name_that_is_allowed() {
        let names = ["filters.example".to_owned()];
        for host in [
            "127.0.0.1",
            "127.0.0.1:7380",
            "10.1.2.3:80",
            "[::1]:7380",
            "[fe80::1]",
            "localhost",
            "LOCALHOST:7380",
            "localhost.",
            "filters.example",
            "Filters.Example:443",
        ] {
            assert!(is_allowed(host, &names), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:7380",
            "localhost.evil.example",
            "evil.example:localhost",
            "127.0.0.1.evil.example",
            "127.0.0.1@evil.example",
            "127.0.0.1:99999",
            "127.1",
            "0x7f000001",
            "2130706433",
            "[::1",
            "[::1]evil",
            "[127.0.0.1]",
            "[evil.example]",
            "::1",
            "filters.example.evil",
            "localhost:",
        ] {
            assert!(!is_allowed(host, &names), "{host}");
        }
    }

    #[test]
    fn a_password_may_have_any_bytes_and_a_user_no_colon() {
        let read = |text: &'static str| basic(&HeaderValue::from_static(text));
        let (user, password) = read("Basic dXNlcjpwYTpzcw==").unwrap();
        assert_eq!((&*user, &*password), (&b"user"[..], &b"pa:ss"[..]));
        for wrong in ["Basic", "Basic ", "Bearer dXNlcjpwYQ==", "Basic !!", "Basic dXNlcg=="] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
