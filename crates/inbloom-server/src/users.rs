//! Who may do what: users, their passwords, and the three roles.
//!
//! Users are in a file, a line for each:
//!
//! ```text
//! # name     role         password
//! default    off
//! dashboard  read-only    sha256:5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8
//! crawler    read-write   password:correct horse battery staple
//! operator   admin        password:Tr0ub4dor&3
//! ```
//!
//! What a role may do follows from the [`Class`] of a command, which the table of commands has.
//! `default` is who a client is that has not said AUTH; where the file has no such line, it is off.
//! Without a file there is only `default`, an admin, with the password of `--password` or without
//! any, as in Redis.
//!
//! Passwords are kept as their SHA-256 only, and compared as such, in a time that tells nothing.
//! The hash is a fast one, so that AUTH costs a microsecond and no attacker can keep the server
//! busy with it; who steals the file can therefore try billions of passwords a second. Take random
//! ones of 20 characters, which no speed helps against: `openssl rand -base64 15`.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The user that every client is until it says otherwise.
pub const DEFAULT: &str = "default";

/// What a user may do; each role may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Asks filters, and changes nothing.
    ReadOnly,
    /// Makes, fills and deletes filters.
    ReadWrite,
    /// Everything.
    Admin,
}

/// What a command needs. The order is that of [`Role`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Nothing: it is how a client says who it is.
    Open,
    /// It changes nothing.
    Read,
    /// It changes keys, one by one.
    Write,
    /// It changes the server, touches files, takes bytes for a filter as they come, or deletes
    /// everything.
    Admin,
}

impl Role {
    /// All of them.
    pub const ALL: [Role; 3] = [Role::ReadOnly, Role::ReadWrite, Role::Admin];

    /// As the file of users has it.
    pub fn name(self) -> &'static str {
        match self {
            Role::ReadOnly => "read-only",
            Role::ReadWrite => "read-write",
            Role::Admin => "admin",
        }
    }

    /// The role of this name.
    pub fn named(name: &[u8]) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.name().as_bytes() == name)
    }

    /// Whether it may run commands of a class.
    pub fn may(self, class: Class) -> bool {
        let most = match self {
            Role::ReadOnly => Class::Read,
            Role::ReadWrite => Class::Write,
            Role::Admin => Class::Admin,
        };
        class <= most
    }
}

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// What it may do; none: it is off.
    pub role: Option<Role>,
    password: Password,
}

#[derive(Clone, PartialEq, Eq)]
enum Password {
    /// Anything is right.
    Any,
    /// What has this SHA-256 is right.
    Hash([u8; 32]),
}

impl fmt::Debug for Password {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Password::Any => "nopass",
            Password::Hash(_) => "secret",
        })
    }
}

impl Password {
    fn of(text: &[u8]) -> Password {
        Password::Hash(Sha256::digest(text).into())
    }
}

impl User {
    /// Whether it needs no password.
    pub fn is_open(&self) -> bool {
        self.password == Password::Any
    }

    /// Whether this is its password, and it is on. Takes the same time whatever the answer.
    fn accepts(&self, given: &[u8]) -> bool {
        let given: [u8; 32] = Sha256::digest(given).into();
        let is_right = match &self.password {
            Password::Any => true,
            Password::Hash(hash) => bool::from(hash.ct_eq(&given)),
        };
        is_right && self.role.is_some()
    }
}

/// All users.
#[derive(Clone, Debug, Default)]
pub struct Users {
    /// Where they are from; none if there is only the default one.
    file: Option<PathBuf>,
    by_name: BTreeMap<Arc<str>, User>,
}

/// A client that was found to be a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its name.
    pub name: Arc<str>,
    /// What it may do.
    pub role: Role,
}

/// Why a file of users cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UsersError {
    /// It cannot be read.
    #[error("cannot read the users from {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Others than its owner can read or change it.
    #[error(
        "{} has mode {mode:04o}, and other users can read or change it: run 'chmod 600 {}'",
        path.display(), path.display()
    )]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A line is not as it should be.
    #[error(
        "{} line {line}: {what}; expected NAME ROLE PASSWORD, such as 'crawler read-write \
         password:TEXT'", path.display()
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong. Never the password.
        what: String,
    },
    /// Nobody could do anything.
    #[error("{} has no user that is on, so nobody could log in", path.display())]
    Nobody {
        /// The file.
        path: PathBuf,
    },
    /// There is nothing to read again.
    #[error("the server was started without --users")]
    NoFile,
}

impl Users {
    /// Reads a file of users.
    ///
    /// # Errors
    ///
    /// Files that others can read or change, and whatever is misspelt: a line is never skipped.
    pub fn load(path: &Path) -> Result<Users, UsersError> {
        let failed = |error| UsersError::Read { path: path.into(), error };
        let file = std::fs::File::open(path).map_err(failed)?;
        if let Some(mode) = open_to_others(&file).map_err(failed)? {
            return Err(UsersError::Mode { path: path.into(), mode });
        }
        let text = io::read_to_string(file).map_err(failed)?;
        Users::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Users, UsersError> {
        let mut by_name = BTreeMap::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what| UsersError::Line { path: path.into(), line: at + 1, what };
            let (name, user) = parse_line(line).map_err(wrong)?;
            if by_name.insert(Arc::from(name), user).is_some() {
                return Err(wrong(format!("user '{name}' is given twice")));
            }
        }
        if by_name.values().all(|user| user.role.is_none()) {
            return Err(UsersError::Nobody { path: path.into() });
        }
        Ok(Users { file: Some(path.into()), by_name })
    }

    /// The file, where there is one.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The user of a name. `default` has the password that the settings have, where they have one.
    pub fn get(&self, name: &[u8], required: &str) -> Option<User> {
        let found = std::str::from_utf8(name).ok().and_then(|name| self.by_name.get(name));
        if name != DEFAULT.as_bytes() {
            return found.cloned();
        }
        let default = match (found, &self.file) {
            (Some(user), _) => user.clone(),
            (None, None) => User { role: Some(Role::Admin), password: Password::Any },
            // Who lists users lists all: a forgotten line lets nobody in, unless by --password.
            (None, Some(_)) => {
                let role = Some(Role::Admin).filter(|_| !required.is_empty());
                User { role, password: Password::Any }
            }
        };
        if required.is_empty() {
            return Some(default);
        }
        Some(User { password: Password::of(required.as_bytes()), ..default })
    }

    /// The names of all, `default` among them.
    pub fn names(&self) -> Vec<Arc<str>> {
        let mut names: Vec<Arc<str>> = self.by_name.keys().cloned().collect();
        if !self.by_name.contains_key(DEFAULT) {
            names.insert(0, DEFAULT.into());
        }
        names
    }

    /// Who a client is that gives this name and this password. A name that there is not takes as
    /// long as one that there is.
    pub fn identify(&self, name: &[u8], password: &[u8], required: &str) -> Option<Identity> {
        let nobody = User { role: None, password: Password::Hash([0; 32]) };
        let user = self.get(name, required).unwrap_or(nobody);
        let is_right = user.accepts(password);
        let role = user.role.filter(|_| is_right)?;
        Some(Identity { name: std::str::from_utf8(name).ok()?.into(), role })
    }

    /// Who a client is that says nothing.
    pub fn stranger(&self, required: &str) -> Option<Identity> {
        let default = self.get(DEFAULT.as_bytes(), required)?;
        let role = default.role.filter(|_| default.is_open())?;
        Some(Identity { name: DEFAULT.into(), role })
    }
}

/// The permissions of a file of secrets, if others than its owner and readers of its group have
/// any.
pub(crate) fn open_to_others(file: &std::fs::File) -> io::Result<Option<u32>> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = file.metadata()?.permissions().mode() & 0o7777;
        // The group may read, so that root can own the file of a service.
        Ok(Some(mode).filter(|mode| mode & 0o027 != 0))
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        Ok(None)
    }
}

/// Err: what is wrong, without the password.
fn parse_line(line: &str) -> Result<(&str, User), String> {
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim_start();
    let (role, password) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let password = password.trim_start();
    if !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("a name can only have ASCII letters, digits and punctuation".into());
    }
    let role = match (role, Role::named(role.as_bytes())) {
        ("", _) => return Err(format!("user '{name}' has no role")),
        ("off", _) => None,
        (_, Some(role)) => Some(role),
        // It may be a password in the wrong place: not for a log.
        (_, None) => {
            return Err(format!(
                "the role of user '{name}' must be read-only, read-write, admin or off"
            ));
        }
    };
    let password = match (password, role) {
        ("", None) => Password::Hash([0; 32]),
        ("", Some(_)) => {
            return Err(format!(
                "user '{name}' has no password: sha256:HEX, password:TEXT, or nopass"
            ));
        }
        ("nopass", _) => Password::Any,
        (text, _) => {
            if let Some(hex) = text.strip_prefix("sha256:") {
                let hash = parse_hash(hex).ok_or_else(|| {
                    format!("sha256: of user '{name}' is not followed by 64 hexadecimal digits")
                })?;
                Password::Hash(hash)
            } else if let Some(plain) = text.strip_prefix("password:") {
                if plain.is_empty() {
                    return Err(format!(
                        "the password of user '{name}' is empty: pass nopass for none"
                    ));
                }
                Password::of(plain.as_bytes())
            } else {
                return Err(format!(
                    "the password of user '{name}' must be sha256:HEX, password:TEXT or nopass"
                ));
            }
        }
    };
    Ok((name, User { role, password }))
}

fn parse_hash(hex: &str) -> Option<[u8; 32]> {
    if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut hash = [0; 32];
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Users, String> {
        Users::parse(text, Path::new("users")).map_err(|error| error.to_string())
    }

    /// The SHA-256 of `secret`, from `printf secret | sha256sum`.
    const HASH: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    #[test]
    fn a_password_is_right_as_text_and_as_hash() {
        let users = parse(&format!(
            "# who\n\n a  read-only password:secret \n b\tadmin\tsha256:{HASH}\nc admin \
             sha256:{}\n",
            HASH.to_uppercase()
        ));
        let users = users.unwrap();
        for (name, role) in [("a", Role::ReadOnly), ("b", Role::Admin), ("c", Role::Admin)] {
            let identity = users.identify(name.as_bytes(), b"secret", "").unwrap();
            assert_eq!((&*identity.name, identity.role), (name, role));
            for wrong in ["", "secre", "secret ", "Secret", HASH] {
                assert_eq!(users.identify(name.as_bytes(), wrong.as_bytes(), ""), None, "{wrong}");
            }
        }
        for name in [&b"d"[..], b"", b"default", b"\xff"] {
            assert_eq!(users.identify(name, b"secret", ""), None);
        }
    }

    #[test]
    fn a_password_may_have_blanks_inside() {
        let users = parse("a admin password:correct horse  staple").unwrap();
        assert!(users.identify(b"a", b"correct horse  staple", "").is_some());
        assert!(users.identify(b"a", b"correct", "").is_none());
    }

    #[test]
    fn the_default_user_is_an_admin_unless_users_are_listed() {
        let none = Users::default();
        assert_eq!(none.stranger("").map(|identity| identity.role), Some(Role::Admin));
        assert_eq!(none.stranger("secret"), None);
        assert!(none.identify(b"default", b"secret", "secret").is_some());
        assert!(none.identify(b"default", b"other", "secret").is_none());

        let listed = parse("a admin nopass").unwrap();
        assert_eq!(listed.stranger(""), None, "a forgotten line lets nobody in");
        assert!(listed.identify(b"default", b"", "").is_none());
        assert!(listed.identify(b"default", b"secret", "secret").is_some());

        let open = parse("default read-only nopass\nb off\nc off nopass").unwrap();
        assert_eq!(open.stranger("").map(|identity| identity.role), Some(Role::ReadOnly));
        assert_eq!(open.stranger("secret"), None, "--password is asked for");
        let known = open.identify(b"default", b"secret", "secret").unwrap();
        assert_eq!(known.role, Role::ReadOnly, "the role is that of the file");
        assert!(open.identify(b"b", b"", "").is_none() && open.identify(b"c", b"", "").is_none());

        let off = parse("default off\na admin nopass").unwrap();
        assert_eq!(off.stranger(""), None);
        assert!(off.identify(b"default", b"secret", "secret").is_none());
    }

    #[test]
    fn what_is_misspelt_is_refused_and_no_password_is_shown() {
        for (text, what) in [
            ("a", "line 1: user 'a' has no role"),
            ("\na admin", "line 2: user 'a' has no password"),
            ("a reader password:hunter2", "line 1: the role of user 'a' must be"),
            ("a hunter2 admin", "line 1: the role of user 'a' must be"),
            ("a admin hunter2", "must be sha256:HEX"),
            ("a admin sha256:hunter2", "not followed by 64 hexadecimal digits"),
            ("a admin password:", "is empty"),
            ("a admin nopass\na off", "line 2: user 'a' is given twice"),
            ("\u{e9} admin nopass", "only have ASCII"),
            ("# nobody\n", "nobody could log in"),
            ("a off", "nobody could log in"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(what), "{text:?}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        let users = parse("a admin password:hunter2").unwrap();
        assert!(!format!("{users:?}").contains("hunter2"));
    }

    #[test]
    fn a_role_may_do_what_those_below_it_may() {
        use Class::*;
        for (role, may) in [
            (Role::ReadOnly, &[Open, Read][..]),
            (Role::ReadWrite, &[Open, Read, Write]),
            (Role::Admin, &[Open, Read, Write, Admin]),
        ] {
            for class in [Open, Read, Write, Admin] {
                assert_eq!(role.may(class), may.contains(&class), "{role:?} {class:?}");
            }
        }
    }
}
