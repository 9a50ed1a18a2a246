//! The parameters of CONFIG GET, CONFIG SET and the settings file, a row for each.
//!
//! Those of RedisBloom have its names, ranges and texts, the others those of Redis. Parameters of Redis
//! that have no meaning here are not there, but for a few that tools look at before they do anything.
//!
//! A settings file (`inbloom serve --config`) has the same names, and those of the options where they
//! differ: [`Settings::change`], CONFIG GET and CONFIG SET take both.

use std::ops::RangeInclusive;

use super::{Config, Settings};
use crate::keyspace::DATABASES;
use crate::parse;
use crate::persist::log::Fsync;
use crate::units;

/// A row of the table of parameters.
pub struct Parameter {
    /// As CONFIG GET reports it.
    pub name: &'static str,
    /// Its value. None if this server has none, or if only a running server has one.
    pub get: fn(Option<&Running<'_>>, &Settings) -> Option<String>,
    /// How to change it.
    pub change: Changeable,
}

/// What parameters report beside the settings: facts of a running server and of the client that asks.
pub struct Running<'a> {
    /// What was fixed when it started.
    pub config: &'a Config,
    /// Whether changes are kept in a folder.
    pub is_persistent: bool,
    /// The port that the client connected to.
    pub port: Option<u16>,
}

/// What CONFIG SET may do to a parameter.
pub enum Changeable {
    /// Nothing.
    Never,
    /// Give it the value that it has: tools do so to be sure of it.
    Same,
    /// Change the settings. Err: what is wrong with the value.
    To(fn(&mut Settings, Given<'_>) -> Result<(), String>),
}

/// A value that CONFIG SET was given.
pub struct Given<'a> {
    /// The parameter.
    pub name: &'static str,
    /// The value.
    pub word: &'a [u8],
}

/// RedisBloom's ceiling of capacities, which its texts name.
const MOST_CAPACITY: i64 = 1 << 30;
/// Rates above are taken for this one, as RedisBloom does.
const MOST_RATE: f64 = 0.25;

/// All parameters, in the order of their names as far as they are Redis's.
pub static PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "appendfsync",
        get: |_, settings| Some(settings.fsync.name().to_owned()),
        change: Changeable::To(|settings, given| {
            let policy = std::str::from_utf8(given.word).ok().and_then(Fsync::parse);
            settings.fsync =
                policy.ok_or("argument(s) must be one of the following: always, everysec, no")?;
            Ok(())
        }),
    },
    Parameter {
        name: "appendonly",
        get: |running, _| Some(if running?.is_persistent { "yes" } else { "no" }.to_owned()),
        change: Changeable::Same,
    },
    Parameter {
        name: "bf-error-rate",
        get: |_, settings| Some(settings.bf_error_rate.to_string()),
        change: Changeable::To(|settings, given| {
            settings.bf_error_rate = given.rate()?.min(MOST_RATE);
            Ok(())
        }),
    },
    Parameter {
        name: "bf-expansion-factor",
        get: |_, settings| Some(settings.bf_expansion_factor.to_string()),
        change: Changeable::To(|settings, given| {
            settings.bf_expansion_factor = given.in_range(0..=32_768)? as u32;
            Ok(())
        }),
    },
    Parameter {
        name: "bf-initial-size",
        get: |_, settings| Some(settings.bf_initial_size.to_string()),
        change: Changeable::To(|settings, given| {
            settings.bf_initial_size = given.in_range(1..=MOST_CAPACITY)? as u64;
            Ok(())
        }),
    },
    Parameter {
        name: "cf-bucket-size",
        get: |_, settings| Some(settings.cf_bucket_size.to_string()),
        change: Changeable::To(|settings, given| {
            settings.cf_bucket_size = given.in_range(1..=255)? as u16;
            Ok(())
        }),
    },
    Parameter {
        name: "cf-expansion-factor",
        get: |_, settings| Some(settings.cf_expansion_factor.to_string()),
        change: Changeable::To(|settings, given| {
            settings.cf_expansion_factor = given.in_range(0..=32_768)? as u16;
            Ok(())
        }),
    },
    Parameter {
        name: "cf-initial-size",
        get: |_, settings| Some(settings.cf_initial_size.to_string()),
        change: Changeable::To(|settings, given| {
            let least = 2 * i64::from(settings.cf_bucket_size);
            settings.cf_initial_size = given.in_range(least..=MOST_CAPACITY)? as u64;
            Ok(())
        }),
    },
    Parameter {
        name: "cf-max-expansions",
        get: |_, settings| Some(settings.cf_max_expansions.to_string()),
        change: Changeable::To(|settings, given| {
            settings.cf_max_expansions = given.in_range(1..=65_536)? as u32;
            Ok(())
        }),
    },
    Parameter {
        name: "cf-max-iterations",
        get: |_, settings| Some(settings.cf_max_iterations.to_string()),
        change: Changeable::To(|settings, given| {
            settings.cf_max_iterations = given.in_range(1..=65_535)? as u16;
            Ok(())
        }),
    },
    Parameter {
        name: "client-query-buffer-limit",
        get: |_, settings| Some(settings.max_request.to_string()),
        change: Changeable::To(|settings, given| {
            settings.max_request = given.bytes(MEBIBYTE..=u64::from(u32::MAX))? as usize;
            Ok(())
        }),
    },
    Parameter {
        name: "databases",
        get: |_, _| Some(DATABASES.to_string()),
        change: Changeable::Never,
    },
    Parameter {
        name: "dir",
        get: |running, _| Some(running?.config.dir.as_ref()?.display().to_string()),
        change: Changeable::Never,
    },
    Parameter {
        name: "io-threads",
        get: |running, _| Some(running?.config.threads.to_string()),
        change: Changeable::Never,
    },
    Parameter {
        name: "max-filter",
        get: |_, settings| Some(shown_limit(settings.max_filter).to_string()),
        change: Changeable::To(|settings, given| {
            settings.max_filter = given.limit()?;
            Ok(())
        }),
    },
    Parameter {
        name: "max-multi",
        get: |_, settings| Some(settings.max_multi.to_string()),
        change: Changeable::To(|settings, given| {
            settings.max_multi = given.bytes(1..=u64::from(u32::MAX))? as usize;
            Ok(())
        }),
    },
    Parameter {
        name: "maxclients",
        get: |_, settings| Some(settings.max_clients.to_string()),
        change: Changeable::To(|settings, given| {
            settings.max_clients = given.between(1..=i64::from(u32::MAX))? as usize;
            Ok(())
        }),
    },
    Parameter {
        name: "log-limit",
        get: |_, settings| Some(settings.log_limit.to_string()),
        change: Changeable::To(|settings, given| {
            settings.log_limit = given.bytes(0..=u64::MAX)?;
            Ok(())
        }),
    },
    Parameter {
        name: "maxmemory",
        get: |_, settings| Some(shown_limit(settings.max_memory).to_string()),
        change: Changeable::To(|settings, given| {
            settings.max_memory = given.limit()?;
            Ok(())
        }),
    },
    Parameter {
        name: "maxmemory-clients",
        get: |_, settings| Some(shown_limit(settings.max_client_memory).to_string()),
        change: Changeable::To(|settings, given| {
            settings.max_client_memory = given.limit()?;
            Ok(())
        }),
    },
    Parameter {
        name: "maxmemory-policy",
        get: |_, _| Some("noeviction".to_owned()),
        change: Changeable::Same,
    },
    Parameter {
        name: "port",
        get: |running, _| Some(running?.port?.to_string()),
        change: Changeable::Never,
    },
    Parameter {
        name: "protected-mode",
        get: |_, settings| Some(if settings.protected_mode { "yes" } else { "no" }.to_owned()),
        change: Changeable::To(|settings, given| {
            settings.protected_mode = match given.word.to_ascii_lowercase().as_slice() {
                b"yes" => true,
                b"no" => false,
                _ => return Err("argument must be 'yes' or 'no'".to_owned()),
            };
            Ok(())
        }),
    },
    Parameter {
        name: "proto-max-bulk-len",
        get: |_, settings| Some(settings.max_argument.to_string()),
        change: Changeable::To(|settings, given| {
            settings.max_argument = given.bytes(MEBIBYTE..=u64::from(u32::MAX))? as usize;
            Ok(())
        }),
    },
    Parameter {
        name: "requirepass",
        // Redis shows it. A user who may read it may change it too, but need not learn it.
        get: |_, settings| {
            let is_none = settings.require_pass.is_empty();
            Some(if is_none { "" } else { "(not shown)" }.to_owned())
        },
        change: Changeable::To(|settings, given| {
            let word =
                std::str::from_utf8(given.word).map_err(|_| "argument must be UTF-8 text")?;
            settings.require_pass = word.to_owned();
            Ok(())
        }),
    },
    Parameter { name: "save", get: |_, _| Some(String::new()), change: Changeable::Same },
    Parameter {
        name: "slowlog-log-slower-than",
        get: |_, settings| Some(settings.slowlog_log_slower_than.to_string()),
        change: Changeable::To(|settings, given| {
            settings.slowlog_log_slower_than = given.between(-1..=i64::MAX)?;
            Ok(())
        }),
    },
    Parameter {
        name: "slowlog-max-len",
        get: |_, settings| Some(settings.slowlog_max_len.to_string()),
        change: Changeable::To(|settings, given| {
            settings.slowlog_max_len = given.between(0..=i64::MAX)? as usize;
            Ok(())
        }),
    },
    Parameter {
        name: "timeout",
        get: |_, settings| Some(settings.timeout.to_string()),
        change: Changeable::To(|settings, given| {
            settings.timeout = given.between(0..=i64::from(i32::MAX))? as u64;
            Ok(())
        }),
    },
    Parameter {
        name: "write-timeout",
        get: |_, settings| Some(settings.write_timeout.to_string()),
        change: Changeable::To(|settings, given| {
            settings.write_timeout = given.between(0..=i64::from(i32::MAX))? as u64;
            Ok(())
        }),
    },
];

/// Options of `inbloom serve` whose parameter has another name here, as Redis calls it.
pub static OPTION_NAMES: &[(&str, &str)] = &[
    ("fsync", "appendfsync"),
    ("max-argument", "proto-max-bulk-len"),
    ("max-client-memory", "maxmemory-clients"),
    ("max-clients", "maxclients"),
    ("max-memory", "maxmemory"),
    ("max-request", "client-query-buffer-limit"),
    ("password", "requirepass"),
    ("threads", "io-threads"),
];

/// Why [`Settings::change`] did not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// There is no such setting.
    #[error("no setting '{name}'{}", suggestion(*.nearest))]
    Unknown {
        /// As it was given.
        name: String,
        /// The name that was probably meant.
        nearest: Option<&'static str>,
    },
    /// It is what it is.
    #[error("'{0}' cannot be changed while the server runs")]
    Fixed(&'static str),
    /// Its value cannot be this one.
    #[error("'{name}': {text}")]
    Value {
        /// The setting.
        name: &'static str,
        /// What is wrong.
        text: String,
    },
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!("; did you mean '{name}'?"))
}

/// The name that somebody meant who wrote another, if one is near enough.
pub fn nearest<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// As clap has it for options: `maxmemroy` is 0.98 from `maxmemory`, unrelated words are below
    /// 0.6.
    const NEAR: f64 = 0.7;
    let given = given.to_ascii_lowercase();
    names
        .into_iter()
        .map(|name| (strsim::jaro(&given, name), name))
        .filter(|(likeness, _)| *likeness > NEAR)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, name)| name)
}

impl Settings {
    /// Changes a setting, by its name in CONFIG SET or that of the option.
    ///
    /// ```
    /// let mut settings = inbloom_server::Settings::default();
    /// settings.change("max-memory", "2gb").unwrap();
    /// assert_eq!(settings.max_memory, 2 << 30);
    /// let refused = settings.change("maxmemroy", "2gb").unwrap_err().to_string();
    /// assert_eq!(refused, "no setting 'maxmemroy'; did you mean 'maxmemory'?");
    /// ```
    pub fn change(&mut self, name: &str, value: &str) -> Result<(), Refused> {
        let row = find(name.as_bytes()).ok_or_else(|| Refused::Unknown {
            name: name.to_owned(),
            nearest: nearest(name, PARAMETERS.iter().map(|row| row.name)),
        })?;
        let Changeable::To(change) = &row.change else { return Err(Refused::Fixed(row.name)) };
        change(self, Given { name: row.name, word: value.as_bytes() })
            .map_err(|text| Refused::Value { name: row.name, text })
    }

    /// Whether [`Settings::change`] can change it.
    pub fn can_change(name: &str) -> bool {
        find(name.as_bytes()).is_some_and(|row| matches!(row.change, Changeable::To(_)))
    }

    /// The value that [`Settings::change`] would have to be given for it to be as it is.
    pub fn value(&self, name: &str) -> Option<String> {
        (find(name.as_bytes())?.get)(None, self)
    }

    /// A value as the log may tell it: passwords are nobody's business.
    pub fn shown(&self, name: &str) -> Option<String> {
        find(name.as_bytes()).map(|row| row.shown(self))
    }

    /// The names of all parameters, fixed ones among them.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PARAMETERS.iter().map(|row| row.name)
    }
}

/// The row of a name, in upper or lower case, or of an option's name.
pub fn find(name: &[u8]) -> Option<&'static Parameter> {
    let option =
        OPTION_NAMES.iter().find(|(option, _)| name.eq_ignore_ascii_case(option.as_bytes()));
    let name = option.map_or(name, |(_, name)| name.as_bytes());
    PARAMETERS.iter().find(|row| name.eq_ignore_ascii_case(row.name.as_bytes()))
}

impl Parameter {
    /// Its value as the log may show it: passwords are left out.
    pub fn shown(&self, settings: &Settings) -> String {
        match (self.get)(None, settings) {
            Some(_) if self.name == "requirepass" => "(not shown)".to_owned(),
            value => value.unwrap_or_default(),
        }
    }
}

impl Given<'_> {
    /// A whole number, with the texts of RedisBloom.
    fn in_range(&self, range: RangeInclusive<i64>) -> Result<i64, String> {
        let number = parse::integer(self.word).ok_or_else(|| self.invalid())?;
        if !range.contains(&number) {
            let (name, least, most) = (self.name, range.start(), range.end());
            return Err(format!("Value for `{name}` must be in the range [{least}, {most}]"));
        }
        Ok(number)
    }

    /// A rate, with the texts of RedisBloom.
    fn rate(&self) -> Result<f64, String> {
        let rate = parse::fraction(self.word).ok_or_else(|| self.invalid())?;
        if !(rate > 0.0 && rate < 1.0) {
            let name = self.name;
            return Err(format!("Value for `{name}` must be in the range (0.000000, 1.000000)"));
        }
        Ok(rate)
    }

    fn invalid(&self) -> String {
        format!("Invalid value for `{}`", self.name)
    }

    /// Bytes, with the texts of Redis.
    fn bytes(&self, range: RangeInclusive<u64>) -> Result<u64, String> {
        let text = std::str::from_utf8(self.word).ok();
        let bytes = text.and_then(|text| units::parse_bytes(text).ok());
        let bytes = bytes.ok_or("argument must be a memory value")?;
        if !range.contains(&bytes) {
            let (least, most) = (range.start(), range.end());
            return Err(format!("argument must be between {least} and {most} inclusive"));
        }
        Ok(bytes)
    }

    /// Bytes of which 0 stands for any number.
    fn limit(&self) -> Result<u64, String> {
        let bytes = self.bytes(0..=u64::MAX)?;
        Ok(if bytes == 0 { u64::MAX } else { bytes })
    }

    /// A whole number, with the texts of Redis.
    fn between(&self, range: RangeInclusive<i64>) -> Result<i64, String> {
        let number =
            parse::integer(self.word).ok_or("argument couldn't be parsed into an integer")?;
        if !range.contains(&number) {
            let (least, most) = (range.start(), range.end());
            return Err(format!("argument must be between {least} and {most} inclusive"));
        }
        Ok(number)
    }
}

/// What the least argument may be that the server is set to take: what fits before AUTH fits after
/// it.
const MEBIBYTE: u64 = 1 << 20;

/// A limit of memory as Redis shows it: 0 if there is none.
pub fn shown_limit(bytes: u64) -> u64 {
    if bytes == u64::MAX { 0 } else { bytes }
}
