//! Filters as files named on the command line.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use inbloom::internals::file;
use inbloom::interop::{Container, Format};
use inbloom::{Digest, Error, Filter, Hasher, Kind, OpenOptions, Plan, SecretKey, Span};

use crate::lock::{Lock, WaitArgs};
use crate::output::problem;
use crate::signals::Signals;

/// The option for the secret key.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct KeyArgs {
    /// Hash with the secret key in this file (32 hexadecimal digits), so that attackers cannot
    /// craft false positives
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

impl KeyArgs {
    pub fn key(&self) -> Result<Option<SecretKey>> {
        let Some(path) = &self.key_file else { return Ok(None) };
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read the secret key from {}", path.display()))?;
        let digits = text.trim();
        let hexadecimal = digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit());
        // The key itself is not for the terminal, nor for a log.
        ensure!(
            hexadecimal,
            problem(
                format!(
                    "{} holds {} characters, but a secret key has 32 hexadecimal digits",
                    path.display(),
                    digits.chars().count()
                ),
                "create one with 'openssl rand -hex 16'"
            )
        );
        let key = u128::from_str_radix(digits, 16).expect("32 hexadecimal digits are 128 bits");
        Ok(Some(SecretKey::new(key.to_be_bytes())))
    }

    /// Opens a filter as it was saved.
    pub fn open(&self, path: &Path) -> Result<Filter> {
        open(path, self.key()?.as_ref())
    }

    /// Opens a filter to change it.
    pub fn open_mut(&self, path: &Path) -> Result<Filter> {
        open_by(path, OpenOptions::new().secret(self.key()?.as_ref()).writable(true))
    }
}

/// How filters are opened: with their secret key, or in the format of another program.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct OpenArgs {
    #[command(flatten)]
    key: KeyArgs,

    /// Format of the filter's file, if its content does not show it
    #[arg(long, value_name = "FORMAT", value_parser = format_parser(), conflicts_with = "key_file")]
    from: Option<Format>,

    /// Variant of the --from format: fnv for Go's filters before version 2.0.1, little-endian; may be
    /// given more than once
    #[arg(long, value_name = "V", requires = "from", value_delimiter = ',')]
    variant: Vec<String>,
}

impl OpenArgs {
    /// The key. It may come from a pipe, so it is read once for all shards, which may be opened
    /// twice.
    fn options(&self) -> Result<OpenOptions> {
        let options = OpenOptions::new().secret(self.key.key()?.as_ref());
        Ok(match self.from {
            Some(format) => options.format(container(format, &self.variant)?),
            None => options,
        })
    }

    /// Whether a file's content may determine its format.
    pub fn allows(&self, format: &str) -> bool {
        self.from.is_none_or(|from| from.name() == format)
    }

    /// Returns the secret key, for filters that are not in files.
    pub fn key(&self) -> Result<Option<SecretKey>> {
        self.key.key()
    }

    /// Returns whether a secret key was given. Does not read it, because it may come from a pipe.
    pub fn has_key(&self) -> bool {
        self.key.key_file.is_some()
    }

    /// Opens a filter to change it.
    pub fn open_mut(&self, path: &Path) -> Result<Filter> {
        open_by(path, self.options()?.writable(true))
    }

    /// Opens a filter to query it now: in a window of time, keys that have expired by now are
    /// absent.
    pub fn open_now(&self, path: &Path) -> Result<Filter> {
        let options = self.options()?;
        at_present(open_by(path, options)?, || open_by(path, options.writable(true)))
    }

    /// Opens a filter as it was saved, in one file or in shards.
    pub fn open_all(&self, path: &Path) -> Result<Filter> {
        open_all_by(path, self.options()?)
    }

    /// Opens a filter to query it, in one file or in shards: see [`OpenArgs::open_now`].
    pub fn open_all_now(&self, path: &Path) -> Result<Filter> {
        let options = self.options()?;
        at_present(open_all_by(path, options)?, || open_all_by(path, options.writable(true)))
    }

    /// Reads all of a filter's file and checks its checksums. Files of other programs have no
    /// checksums, and were checked when they were read.
    pub fn verify(&self, path: &Path) -> Result<()> {
        if self.from.is_some() { Ok(()) } else { verify(path) }
    }
}

/// Takes the names of the formats of other programs, and lists them in help and errors.
pub fn format_parser() -> impl TypedValueParser<Value = Format> {
    let described = |format: Format| PossibleValue::new(format.name()).help(format.title());
    PossibleValuesParser::new(Format::all().map(described))
        .map(|name| name.parse().expect("the name is one of Format::all"))
}

/// Returns a format with the given variants.
pub fn container(format: Format, variants: &[String]) -> Result<Container> {
    Ok(Container::new(format, variants.iter().map(String::as_str))?)
}

/// Returns whether a filter has a target rate. In formats that record none, the plan is a guess
/// from the bits.
pub fn has_target(filter: &Filter) -> bool {
    filter.plan().kind().format().is_none_or(Format::records_plan)
}

/// Sets the clock of a window of time that was opened to query it, so that old keys expire. The
/// change is in memory; the files stay as they are.
fn at_present(filter: Filter, open_mut: impl FnOnce() -> Result<Filter>) -> Result<Filter> {
    if !has_clock(filter.plan()) {
        return Ok(filter);
    }
    let mut filter = open_mut()?;
    advance(&mut filter)?;
    Ok(filter)
}

/// The options for the hash of a new filter. Later commands take its seed from its file.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct HashArgs {
    #[command(flatten)]
    pub key: KeyArgs,

    /// Seed of the hash, 0 or more [default: 0]; filters that are combined with "and" need different
    /// seeds, or their false positives coincide
    #[arg(long, value_name = "N", conflicts_with = "key_file", allow_negative_numbers = true)]
    hash_seed: Option<u64>,
}

impl HashArgs {
    /// Returns the hash of a new filter of this kind.
    pub fn hasher(&self, kind: Kind) -> Result<Hasher> {
        let given = self.given()?;
        if !kind.is_exact() {
            return Ok(given.map_or_else(Hasher::default, |(_, hasher)| hasher));
        }
        if let Some((option, _)) = given {
            bail!(problem(
                "kind bitmap stores integers without hashing them",
                format!("leave {option} out")
            ));
        }
        Ok(Hasher::integers())
    }

    /// Returns the hash of a new filter for another program, with the given seed if it takes one.
    pub fn foreign_hasher(&self, hasher: Hasher) -> Result<Hasher> {
        match self.hash_seed {
            None => Ok(hasher),
            Some(seed) => hasher.with_seed(seed).ok_or_else(|| {
                anyhow!(problem("the hash of this format has no seed", "leave --hash-seed out"))
            }),
        }
    }

    /// Refuses options for another hash than that of an existing filter.
    pub fn check(&self, filter: &Filter) -> Result<()> {
        self.check_hasher(filter.hasher())
    }

    /// Refuses options for another hash than this one.
    pub fn check_hasher(&self, found: &Hasher) -> Result<()> {
        let Some((option, asked)) = self.given()? else { return Ok(()) };
        ensure!(
            asked == *found,
            problem(
                format!(
                    "the filter already exists, with the hash {}, not {}",
                    shown(found),
                    shown(&asked)
                ),
                format!("leave {option} out, or name another file")
            )
        );
        Ok(())
    }

    /// Returns the given hash, if any, and its option.
    fn given(&self) -> Result<Option<(&'static str, Hasher)>> {
        let keyed = self.key.key()?.map(|key| ("--key-file", Hasher::sip13(key)));
        let seeded = self.hash_seed.map(|seed| ("--hash-seed", Hasher::xxh3(seed)));
        Ok(keyed.or(seeded))
    }
}

/// Describes a hash. The seed is included unless it is the default.
pub fn shown(hasher: &Hasher) -> String {
    match hasher.seed() {
        None | Some(0) => hasher.name().to_string(),
        Some(seed) => format!("{} under seed {seed}", hasher.name()),
    }
}

/// Opens a file as it was saved.
pub fn open(path: &Path, key: Option<&SecretKey>) -> Result<Filter> {
    open_by(path, OpenOptions::new().secret(key))
}

/// Opens one file, or one of the filters in it, such as `dump.rdb#seen`.
fn open_by(path: &Path, options: OpenOptions) -> Result<Filter> {
    check_one_file(path)?;
    options.open(path).map_err(|error| name(error, path))
}

/// Returns the files of a name: the file of that name or, if it does not exist, the filter's shards
/// in order. If there are no shards either, returns the name.
pub fn files_of(path: &Path) -> Vec<PathBuf> {
    let shards = shards_instead_of(path);
    if shards.is_empty() { vec![path.to_owned()] } else { shards }
}

/// Opens a filter as it was saved, in one file or in shards.
pub fn open_all(path: &Path, key: Option<&SecretKey>) -> Result<Filter> {
    open_all_by(path, OpenOptions::new().secret(key))
}

/// Opens the files of a filter one by one. An error therefore names the file of a damaged shard.
fn open_all_by(path: &Path, options: OpenOptions) -> Result<Filter> {
    let files = files_of(path);
    if files == [path] {
        return open_by(path, options);
    }
    let open = |file: &PathBuf| open_by(file, options);
    let shards = files.iter().map(open).collect::<Result<Vec<Filter>>>()?;
    check_normalization(&files, &shards)?;
    Filter::from_shards(shards).with_context(|| file::stem_of(path).display().to_string())
}

/// All shards must have the same normalization and key encoding, because a line is looked up in one
/// form only, that of the first shard. The library does not interpret these texts.
fn check_normalization(files: &[PathBuf], shards: &[Filter]) -> Result<()> {
    let (first, expected) = (files[0].display(), shards[0].normalization());
    for (file, shard) in files.iter().zip(shards) {
        let (file, got) = (file.display(), shard.normalization());
        ensure!(
            got == expected,
            problem(
                format!(
                    "{first} and {file} are not shards of one filter: their normalizations are \
                     {expected:?} and {got:?}"
                ),
                "build all shards with the same options"
            )
        );
        let (expected, got) = (shards[0].key_encoding(), shard.key_encoding());
        ensure!(
            got == expected,
            problem(
                format!(
                    "{first} and {file} are not shards of one filter: their key encodings are \
                     {expected:?} and {got:?}"
                ),
                "build all shards with the same options"
            )
        );
    }
    Ok(())
}

/// Returns the existing shards of a filter that has no file of its own.
fn shards_instead_of(path: &Path) -> Vec<PathBuf> {
    match path.try_exists() {
        // In a folder that cannot be read there are none; opening the file tells what is wrong.
        Ok(false) => file::shard_paths(file::stem_of(path)).unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// Returns the error for a name that has only shards, in a command that takes one file.
fn only_shards(path: &Path) -> Option<anyhow::Error> {
    let shards = shards_instead_of(path);
    let first = shards.first()?.display();
    Some(anyhow!(problem(
        format!(
            "{} does not exist, but {} shards of it do, such as {first}",
            path.display(),
            shards.len()
        ),
        "use 'inbloom check', 'info' or 'measure', which read shards together; to change them, \
         build them again; or choose another name"
    )))
}

fn check_one_file(path: &Path) -> Result<()> {
    only_shards(path).map_or(Ok(()), Err)
}

/// Sets the clock of a window of time to now. Other filters have none.
pub fn advance(filter: &mut Filter) -> Result<()> {
    if has_clock(filter.plan()) {
        filter.advance(now())?;
    }
    Ok(())
}

fn has_clock(plan: &Plan) -> bool {
    matches!(plan.span(), Some(Span::Millis(_)))
}

/// Returns the time for the clock of windows, in milliseconds since 1970. A system clock before
/// 1970 counts as 0.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Inserts the keys of a set, in order, and returns for each whether it was new.
///
/// In most kinds this is an insert. A counting or cuckoo filter would hold a repeated key twice, so
/// the key is inserted only if it is absent. After an error, the results end before the failed key.
pub fn insert_set(
    filter: &mut Filter,
    digests: &[Digest],
    new: &mut Vec<bool>,
) -> inbloom::Result<()> {
    match filter.plan().kind().counts() {
        true => insert_absent(filter, digests, new),
        false => filter.insert_digests(digests, new),
    }
}

/// Inserts the absent keys, in order, and returns for each whether it was new. After an error, the
/// results end before the failed key.
pub fn insert_absent(
    filter: &mut Filter,
    digests: &[Digest],
    new: &mut Vec<bool>,
) -> inbloom::Result<()> {
    // Asked for all at once only to bring their memory in. The answers are not for later: one key
    // may repeat another, and what was there may be forgotten by then, by a window or auto-clear.
    filter.contains_digests(digests, new);
    for (at, digest) in digests.iter().enumerate() {
        let inserted = match filter.contains_digest(*digest) {
            true => Ok(false),
            false => filter.insert_digest(*digest),
        };
        match inserted {
            Ok(is_new) => new[at] = is_new,
            Err(error) => {
                new.truncate(at);
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Returns how many inserts reported a new key.
pub fn count_new(new: &[bool]) -> u64 {
    new.iter().map(|new| u64::from(*new)).sum()
}

/// Returns whether the current rate is above its target by more than chance explains. At the
/// planned number of keys the fill varies around its expectation, so half of all good filters are
/// slightly above it. That is not worth a warning.
pub fn exceeds_promise(filter: &Filter) -> bool {
    if !has_target(filter) {
        return false;
    }
    let (plan, rate, estimate) = (filter.plan(), filter.rate(), filter.estimated_items());
    let planned = plan.items() as f64;
    let within_chance = if plan.kind().forgets() {
        // A window may hold its keys unevenly: its rate tells, not their number.
        rate <= plan.rate_at(planned + 3.0 * estimate.error)
    } else {
        // Where the rate does not follow from how many keys there are, nothing is left to chance.
        !plan.kind().keeps_rate() && estimate.items - 3.0 * estimate.error <= planned
    };
    rate > plan.rate() && !within_chance
}

/// Reads all of a filter's file and checks its checksums.
pub fn verify(path: &Path) -> Result<()> {
    check_one_file(path)?;
    file::verify(path).map_err(|error| name(error, path))
}

/// Adds the name of the file, unless the library's error has it.
fn name(error: Error, path: &Path) -> anyhow::Error {
    match error {
        Error::Io { .. } => error.into(),
        Error::Key { problem: wrong } => anyhow!(problem(
            format!("{}: the filter was built with a secret key, and {wrong}", path.display()),
            "pass that secret key with --key-file",
        )),
        _ => anyhow::Error::new(error).context(path.display().to_string()),
    }
}

/// Checks that a file can be saved at this path, before hours of reading. A filter is saved beside
/// its final name and then renamed, so its folder must exist and be writable, and the name must be
/// free or that of a file.
pub fn check_output(path: &Path) -> Result<()> {
    let shown = path.display();
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        bail!(problem(
            format!("cannot write to {shown}, which is not a file"),
            "choose another name"
        ));
    }
    check_one_file(path)?;
    let folder = folder_of(path);
    tempfile::tempfile_in(&folder)
        .with_context(|| format!("cannot create {shown}: folder {}", folder.display()))
        .map(drop)
}

/// Returns the folder in which a file is saved. For a link, it is the folder of its target.
pub fn folder_of(path: &Path) -> PathBuf {
    let path = file::destination(path).unwrap_or_else(|_| path.to_owned());
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Saves a filter. The first signal to stop has no effect during the save; a second one ends the
/// program and leaves the old file.
pub fn save(filter: &Filter, path: &Path) -> Result<()> {
    Signals::catch()?;
    Ok(filter.save(path)?)
}

/// A file that is read, changed in memory and replaced. It is locked before it is opened.
///
/// A lock only stops programs that check it. So before the file is replaced, it must still be the
/// one that was read.
pub struct Changed {
    path: PathBuf,
    found: Option<Stamp>,
    _lock: Lock,
}

/// Identifies a state of a file: a saved filter is a new file with a new time.
#[derive(PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    #[cfg(unix)]
    inode: (u64, u64),
}

impl Changed {
    /// Locks the file. Call it before the file is opened. The file need not exist yet.
    pub fn new(path: &Path, wait: WaitArgs) -> Result<Changed> {
        check_output(path)?;
        let lock = Lock::take(path, wait)?;
        Ok(Changed { path: path.to_owned(), found: stamp(path), _lock: lock })
    }

    /// Returns whether the filter exists. If only its shards exist, that is an error, because a new
    /// file would hide them.
    pub fn exists(&self) -> Result<bool> {
        check_one_file(&self.path)?;
        Ok(self.found.is_some())
    }

    pub fn save(&mut self, filter: &Filter) -> Result<()> {
        let shown = self.path.display();
        ensure!(
            stamp(&self.path) == self.found,
            problem(
                format!("{shown} was changed by another program meanwhile, so it was not saved"),
                "run one program at a time"
            )
        );
        save(filter, &self.path)?;
        self.found = stamp(&self.path);
        Ok(())
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = fs::metadata(path).ok()?;
    Some(Stamp {
        modified: metadata.modified().ok(),
        length: metadata.len(),
        #[cfg(unix)]
        inode: {
            use std::os::unix::fs::MetadataExt;
            (metadata.dev(), metadata.ino())
        },
    })
}
