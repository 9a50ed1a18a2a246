//! Where a filter is: `redis[s]://[user:password@]host[:port][/DB]/NAME`.
//!
//! One path segment is a name. An all-digit one is refused, because it could be a database as well.
//! User, password and name may have percent-encoded bytes.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// The port of Redis, where an address has none.
const PORT: u16 = 6379;

/// A server, or one of a cluster: `redis[s]://[user:password@]host[:port][/DB]`.
///
/// ```
/// use inbloom_redis::Server;
///
/// let server: Server = "rediss://:secret@cache.example.org/3".parse()?;
/// assert_eq!((server.host(), server.port(), server.database()), ("cache.example.org", 6379, 3));
/// assert_eq!(server.to_string(), "rediss://cache.example.org:6379/3"); // without the password
/// # Ok::<(), inbloom_redis::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Server {
    pub(crate) tls: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: u32,
}

/// A filter on a server: `redis[s]://[user:password@]host[:port][/DB]/NAME`.
///
/// ```
/// use inbloom_redis::Address;
///
/// let address: Address = "redis://localhost:7000/seen".parse()?;
/// assert_eq!((address.server().port(), address.name()), (7000, "seen"));
/// assert!("redis://localhost/7".parse::<Address>().is_err()); // a database, or a name?
/// # Ok::<(), inbloom_redis::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    server: Server,
    name: String,
}

impl Server {
    /// Returns the host's name or address.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port, 6379 unless the address has one.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the number of the database, 0 unless the address has one.
    #[must_use]
    pub fn database(&self) -> u32 {
        self.database
    }

    /// Sets the password, for those who keep it out of the address.
    #[must_use]
    pub fn with_password(mut self, password: impl Into<String>) -> Server {
        self.password = Some(password.into());
        self
    }
}

impl Address {
    /// Returns whether a text is meant as an address, and not as a path.
    #[must_use]
    pub fn is_address(text: &str) -> bool {
        scheme_of(text).is_some()
    }

    /// Returns the address of a filter on a server.
    #[must_use]
    pub fn new(server: Server, name: impl Into<String>) -> Address {
        Address { server, name: name.into() }
    }

    /// Returns the server.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Returns the filter's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the password, for those who keep it out of the address.
    #[must_use]
    pub fn with_password(mut self, password: impl Into<String>) -> Address {
        self.server = self.server.with_password(password);
        self
    }
}

impl FromStr for Server {
    type Err = Error;

    fn from_str(text: &str) -> Result<Server> {
        let fail = |problem: String| Error::Address { address: without_password(text), problem };
        let (mut server, path) = authority(text).map_err(fail)?;
        server.database = match path {
            None | Some("") => 0,
            Some(database) => database_of(database).map_err(fail)?,
        };
        Ok(server)
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Address> {
        let fail = |problem: String| Error::Address { address: without_password(text), problem };
        let (mut server, path) = authority(text).map_err(fail)?;
        let path = path.unwrap_or_default();
        let name = match path.split_once('/') {
            Some((database, name)) => {
                server.database = database_of(database).map_err(fail)?;
                name
            }
            None if !path.is_empty() && path.bytes().all(|byte| byte.is_ascii_digit()) => {
                return Err(fail(format!(
                    "/{path} could be a database or a name: write /{path}/NAME or /0/{path}"
                )));
            }
            None => path,
        };
        if name.is_empty() {
            return Err(fail(
                "the name of the filter is missing: write redis://host/NAME".to_owned(),
            ));
        }
        if name.contains('/') {
            return Err(fail("a name cannot contain /: write %2F instead".to_owned()));
        }
        Ok(Address { server, name: decoded(name).map_err(fail)? })
    }
}

/// Splits a scheme off: whether it is one with TLS, and the rest.
fn scheme_of(text: &str) -> Option<(bool, &str)> {
    let plain = text.strip_prefix("redis://").map(|rest| (false, rest));
    plain.or_else(|| text.strip_prefix("rediss://").map(|rest| (true, rest)))
}

/// Reads an address up to its path, and returns the path without its first slash.
fn authority(text: &str) -> std::result::Result<(Server, Option<&str>), String> {
    let (tls, rest) = scheme_of(text).ok_or("must begin with redis:// or rediss://")?;
    if let Some(found) = rest.find(['?', '#']) {
        return Err(format!("{:?} is not supported here: write %3F or %23", &rest[found..=found]));
    }
    let (authority, path) = match rest.split_once('/') {
        Some((authority, path)) => (authority, Some(path)),
        None => (rest, None),
    };
    if path.is_some_and(|path| path.contains('@')) {
        return Err("a password or name cannot contain @ or /: write %40 or %2F".to_owned());
    }
    let (login, place) = match authority.rsplit_once('@') {
        Some((login, place)) => (Some(login), place),
        None => (None, authority),
    };
    let (user, password) = match login.map(|login| login.split_once(':')) {
        None => (None, None),
        Some(None) => return Err("expected user:password or :password before the @".to_owned()),
        Some(Some((user, password))) => (Some(decoded(user)?), Some(decoded(password)?)),
    };
    let (host, port) = match place.strip_prefix('[').map(|place| place.split_once(']')) {
        Some(Some((host, ""))) => (host, None),
        Some(Some((host, port))) => {
            (host, Some(port.strip_prefix(':').ok_or("expected : after the host")?))
        }
        Some(None) => return Err("the ] of the host is missing".to_owned()),
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    if host.is_empty() {
        return Err("the host is missing".to_owned());
    }
    let port = match port {
        None => PORT,
        Some(port) => match port.parse() {
            Ok(0) | Err(_) => return Err("the port must be from 1 to 65535".to_owned()),
            Ok(port) => port,
        },
    };
    let user = user.filter(|user| !user.is_empty());
    Ok((Server { tls, host: host.to_owned(), port, user, password, database: 0 }, path))
}

fn database_of(text: &str) -> std::result::Result<u32, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = if is_number { text.parse().ok() } else { None };
    number.ok_or_else(|| format!("database {text:?} is not a number"))
}

/// Replaces %XX by the byte that it stands for.
fn decoded(text: &str) -> std::result::Result<String, String> {
    let fail = || format!("{text:?} has a % without two hexadecimal digits, or is not UTF-8");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2).ok_or_else(fail)?;
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
        let (high, low) = (digit(digits[0]).ok_or_else(fail)?, digit(digits[1]).ok_or_else(fail)?);
        bytes.push(high << 4 | low);
        rest = behind;
    }
    String::from_utf8(bytes).map_err(|_| fail())
}

/// An address as it may be shown.
fn without_password(text: &str) -> String {
    let Some((tls, rest)) = scheme_of(text) else {
        // Whatever it is, what stands before an @ is not shown.
        return text.rsplit('@').next().unwrap_or_default().to_owned();
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    // A password that has a slash in it ends up in what looks like the path.
    let shown = match (authority.rsplit_once('@'), path.rsplit_once('@')) {
        (_, Some((_, place))) => place.to_owned(),
        (Some((_, place)), None) => format!("{place}{path}"),
        (None, None) => rest.to_owned(),
    };
    format!("redis{}://{shown}", if tls { "s" } else { "" })
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Server { host, port, database, .. } = self;
        write!(f, "redis{}://", if self.tls { "s" } else { "" })?;
        match host.contains(':') {
            true => write!(f, "[{host}]:{port}")?,
            false => write!(f, "{host}:{port}")?,
        }
        if *database > 0 { write!(f, "/{database}") } else { Ok(()) }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.server)?;
        let digits = self.name.bytes().all(|byte| byte.is_ascii_digit());
        f.write_str(if digits && self.server.database == 0 { "/0/" } else { "/" })?;
        for byte in self.name.bytes() {
            match byte {
                b'/' | b'?' | b'#' | b'%' | b'@' | 0..=0x20 | 0x7f.. => write!(f, "%{byte:02X}")?,
                _ => write!(f, "{}", char::from(byte))?,
            }
        }
        Ok(())
    }
}

/// Without the password.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({self})")
    }
}

/// Without the password.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn the_parts_of_an_address_are_found() {
        for (text, host, port, database, name) in [
            ("redis://localhost/seen", "localhost", 6379, 0, "seen"),
            ("redis://localhost:7000/5/seen", "localhost", 7000, 5, "seen"),
            ("rediss://u:p@[::1]:7000/0/17", "::1", 7000, 0, "17"),
            ("redis://[::1]/a%2Fb%20c", "::1", 6379, 0, "a/b c"),
            ("redis://:p%40q@h/7up", "h", 6379, 0, "7up"),
        ] {
            let found = address(text);
            let Server { host: found_host, port: found_port, .. } = found.server();
            assert_eq!((found_host.as_str(), *found_port, found.name()), (host, port, name));
            assert_eq!(found.server().database(), database, "{text}");
        }
        let server = address("rediss://user:p%3Aw@h/x").server;
        assert!(server.tls);
        assert_eq!(
            (server.user.as_deref(), server.password.as_deref()),
            (Some("user"), Some("p:w"))
        );
        assert_eq!(address("redis://:pw@h/x").server.user, None);
    }

    #[test]
    fn what_is_ambiguous_or_malformed_is_refused() {
        for (text, problem) in [
            ("redis://h/12", "could be a database or a name"),
            ("redis://h", "name of the filter is missing"),
            ("redis://h/", "name of the filter is missing"),
            ("redis://h/3/", "name of the filter is missing"),
            ("redis://h/x/y", "database \"x\" is not a number"),
            ("redis://h/1/y/z", "cannot contain /"),
            ("redis://h:0/x", "1 to 65535"),
            ("redis://h:65536/x", "1 to 65535"),
            ("redis://h/x@y", "%40"),
            ("redis://:6379/x", "host is missing"),
            ("redis://user@h/x", "user:password"),
            ("redis://h/%zz", "hexadecimal"),
            ("redis://h/%", "hexadecimal"),
            ("redis://h/%ff", "UTF-8"),
            ("redis://h/x?y", "not supported"),
            ("redis://[::1/x", "] of the host"),
            ("http://h/x", "redis:// or rediss://"),
            ("redis://h/4294967296/x", "not a number"),
        ] {
            let error = text.parse::<Address>().expect_err(text).to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
        assert!("redis://h/x".parse::<Server>().is_err());
        assert!("redis://h/3/x".parse::<Server>().is_err());
    }

    #[test]
    fn addresses_are_shown_without_passwords_and_read_again() {
        for text in ["redis://h:1/x", "redis://[::1]:1/2/x%2Fy", "rediss://h:1/0/17"] {
            assert_eq!(address(text).to_string(), text);
            let with_login = text.replacen("//", "//user:hunter2@", 1);
            assert_eq!(address(&with_login).to_string(), text);
            assert!(!format!("{:?}", address(&with_login)).contains("hunter2"));
        }
        for wrong in ["redis://u:hunter2@h", "redis://u:hunter2@h/3", "x://u:hunter2@h/x"] {
            let error = wrong.parse::<Address>().expect_err(wrong).to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
        // A slash in a password must be encoded; even so it is not shown.
        let error = "redis://u:hunter2/x@h/3".parse::<Address>().expect_err("a slash").to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
