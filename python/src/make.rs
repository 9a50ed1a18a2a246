//! Plans and filters from keyword arguments, files and bytes.

use std::io::Cursor;
use std::path::PathBuf;
use std::time::Duration;

use inbloom::interop::{Container, Format};
use inbloom::{Digest, Hasher, Kind, OpenOptions, Plan, SecretKey, Span};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::batch::Batch;
use crate::column::{Problem, Visitor};
use crate::error::{bad_parameter, exception, raised};
use crate::filter::{Filter, failed};
use crate::key::{Form, Keys};

/// What a plan is made from.
pub struct Given<'py> {
    pub items: Option<u64>,
    pub rate: Option<f64>,
    pub kind: &'py str,
    pub bytes: Option<u64>,
    pub bits_per_key: Option<f64>,
    pub probes: Option<u32>,
    pub lines: Option<u32>,
    pub universe: Option<u64>,
    pub width: Option<u32>,
    pub growth: Option<u32>,
    pub tightening: Option<f64>,
    pub window: Option<Bound<'py, PyAny>>,
    pub last: Option<u64>,
    pub generations: Option<u32>,
}

impl Given<'_> {
    pub fn plan(&self, py: Python<'_>) -> PyResult<Plan> {
        let kind: Kind = self.kind.parse().map_err(|error| raised(py, error))?;
        let mut builder = Plan::builder(kind);
        macro_rules! set {
            ($($name:ident),*) => { $(if let Some(value) = self.$name { builder = builder.$name(value); })* };
        }
        set!(items, rate, bytes, bits_per_key, probes, lines, universe, width, growth);
        set!(tightening, last, generations);
        if let Some(window) = &self.window {
            builder = builder.window(duration(window)?);
        }
        builder.build().map_err(|error| raised(py, error))
    }
}

/// A time: seconds, a timedelta, or a number with a unit, such as "7d".
fn duration(given: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let py = given.py();
    let seconds = if let Ok(text) = given.cast::<PyString>() {
        let text = text.to_str()?;
        let unit = text.trim_end().chars().next_back().unwrap_or(' ');
        let factor = match unit {
            's' => 1.0,
            'm' => 60.0,
            'h' => 3600.0,
            'd' => 86_400.0,
            _ => 0.0,
        };
        let number = text.trim_end().strip_suffix(unit).and_then(|number| number.parse().ok());
        number.map_or(f64::NAN, |number: f64| number * factor)
    } else if given.hasattr("total_seconds")? {
        given.call_method0("total_seconds")?.extract()?
    } else {
        given.extract::<f64>()?
    };
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero());
    time.ok_or_else(|| {
        bad_parameter(
            py,
            format!(
                "window is {given}, but must be a time above zero: seconds, a timedelta, or a \
                 number with s, m, h or d, such as \"7d\""
            ),
        )
    })
}

/// The hash for a kind, seed and secret.
pub fn hasher(
    py: Python<'_>,
    kind: Kind,
    seed: Option<u64>,
    secret: Option<&[u8]>,
) -> PyResult<Hasher> {
    match (seed, secret_key(py, secret)?) {
        (Some(_), Some(_)) => {
            Err(bad_parameter(py, "seed and secret cannot be combined: a secret has no seed"))
        }
        (None, Some(key)) => Ok(Hasher::sip13(key)),
        (Some(seed), None) => Ok(Hasher::xxh3(seed)),
        (None, None) if kind.is_exact() => Ok(Hasher::integers()),
        (None, None) => Ok(Hasher::default()),
    }
}

fn secret_key(py: Python<'_>, secret: Option<&[u8]>) -> PyResult<Option<SecretKey>> {
    let Some(secret) = secret else { return Ok(None) };
    match secret.try_into() {
        Ok(bytes) => Ok(Some(SecretKey::new(bytes))),
        Err(_) => {
            let length = secret.len();
            Err(bad_parameter(py, format!("secret has {length} bytes, but must have 16")))
        }
    }
}

/// Records how integers become keys.
pub fn set_int_width(
    py: Python<'_>,
    filter: &mut inbloom::Filter,
    width: Option<u32>,
) -> PyResult<()> {
    let Some(width) = width else { return Ok(()) };
    let Some((_, encoding)) = Form::of_width(width) else {
        return Err(bad_parameter(py, format!("int_width is {width}, but must be 4 or 8")));
    };
    let recorded = filter.key_encoding().to_string();
    let same = [encoding.name(), if width == 8 { "i64le" } else { "i32le" }];
    if !recorded.is_empty() && !same.contains(&recorded.as_str()) {
        let text =
            format!("the filter's key encoding is {recorded}, and int_width={width} is another");
        return Err(exception(py, "MismatchError", text));
    }
    match recorded.is_empty() {
        true => filter.set_key_encoding(encoding.name()).map_err(|error| raised(py, error)),
        false => Ok(()),
    }
}

/// Returns what a filter would take, as a dict: bytes, bits per key, probes and so on.
///
/// It takes the arguments of Filter that decide its size, and allocates nothing.
///
/// >>> import inbloom
/// >>> plan = inbloom.plan(1_000_000, 0.01)
/// >>> plan["bytes"], round(plan["bits_per_key"], 1)
/// (1265408, 10.1)
/// >>> inbloom.plan(bytes=2**30, rate=0.001)["items"] > 500_000_000
/// True
#[pyfunction]
#[pyo3(signature = (
    items = None, rate = None, kind = "blocked", *, bytes = None, bits_per_key = None, probes = None,
    lines = None, universe = None, width = None, growth = None, tightening = None, window = None,
    last = None, generations = None,
))]
#[expect(clippy::too_many_arguments, reason = "they are keywords")]
pub fn plan<'py>(
    py: Python<'py>,
    items: Option<u64>,
    rate: Option<f64>,
    kind: &str,
    bytes: Option<u64>,
    bits_per_key: Option<f64>,
    probes: Option<u32>,
    lines: Option<u32>,
    universe: Option<u64>,
    width: Option<u32>,
    growth: Option<u32>,
    tightening: Option<f64>,
    window: Option<Bound<'py, PyAny>>,
    last: Option<u64>,
    generations: Option<u32>,
) -> PyResult<Bound<'py, PyDict>> {
    let given = Given {
        items,
        rate,
        kind,
        bytes,
        bits_per_key,
        probes,
        lines,
        universe,
        width,
        growth,
        tightening,
        window,
        last,
        generations,
    };
    let plan = given.plan(py)?;
    let fields = PyDict::new(py);
    fields.set_item("kind", plan.kind().name())?;
    fields.set_item("items", plan.items())?;
    fields.set_item("rate", plan.rate())?;
    fields.set_item("bits", plan.bits())?;
    fields.set_item("bits_per_key", plan.bits_per_key())?;
    fields.set_item("bytes", plan.bytes())?;
    fields.set_item("probes", plan.probes())?;
    fields.set_item("cache_lines", plan.cache_lines())?;
    particulars(&plan, &fields)?;
    Ok(fields)
}

/// What only some kinds have, and None for the others.
pub fn particulars(plan: &Plan, fields: &Bound<'_, PyDict>) -> PyResult<()> {
    let kind = plan.kind();
    let (seconds, keys) = match plan.span() {
        Some(Span::Millis(millis)) => (Some(millis as f64 / 1000.0), None),
        Some(Span::Items(items)) => (None, Some(items)),
        None => (None, None),
    };
    fields.set_item("width", kind.has_wide_cells().then(|| plan.width()))?;
    fields.set_item("growth", kind.can_grow().then(|| plan.growth()))?;
    fields.set_item("tightening", kind.can_grow().then(|| plan.tightening()))?;
    fields.set_item("window", seconds)?;
    fields.set_item("last", keys)?;
    fields.set_item("generations", kind.forgets().then(|| plan.generations()))
}

/// Opens a filter's file.
///
/// The file is mapped, not read: opening takes the same time whatever its size, and processes that
/// open one file share one copy of it in memory. With writable=True the filter can be changed; the
/// file stays as it is until it is saved. With verify=True every byte is checked first.
///
/// Files of other programs (Guava, Spark, Go, RedisBloom, Parquet, DCSO) are recognized; format
/// names one where the bytes do not tell. int_width says how integers become keys, where the file
/// does not.
///
/// As a context manager, a writable filter is saved to its file at the end of the block, unless an
/// exception ends it. Then the filter is closed.
///
/// >>> import inbloom, os, tempfile
/// >>> path = os.path.join(tempfile.mkdtemp(), "seen.ib")
/// >>> inbloom.Filter(1000).save(path)
/// >>> with inbloom.open(path, writable=True) as seen:
/// ...     seen.add("alice")
/// True
/// >>> "alice" in inbloom.open(path)
/// True
#[pyfunction]
#[pyo3(signature = (
    path, *, writable = false, verify = false, secret = None, format = None, int_width = None,
))]
pub fn open(
    py: Python<'_>,
    path: PathBuf,
    writable: bool,
    verify: bool,
    secret: Option<&[u8]>,
    format: Option<&str>,
    int_width: Option<u32>,
) -> PyResult<Filter> {
    let key = secret_key(py, secret)?;
    let mut options = OpenOptions::new().secret(key.as_ref()).writable(writable).verify(verify);
    if let Some(format) = format {
        let format: Format = format.parse().map_err(|error| raised(py, error))?;
        options = options.format(format);
    }
    let opened = py.detach(|| options.open(&path));
    let mut filter = opened.map_err(|error| raised(py, error))?;
    set_int_width(py, &mut filter, int_width)?;
    Ok(Filter::opened(filter, path, writable))
}

/// Reads a filter from the bytes of its file: those of Filter.to_bytes, or what a file holds.
///
/// All of it is checked. The bytes may come from anybody.
///
/// >>> import inbloom
/// >>> seen = inbloom.Filter(1000)
/// >>> seen.add("alice")
/// True
/// >>> "alice" in inbloom.from_bytes(seen.to_bytes())
/// True
#[pyfunction]
#[pyo3(signature = (data, *, secret = None))]
pub fn from_bytes(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    secret: Option<&[u8]>,
) -> PyResult<Filter> {
    let key = secret_key(py, secret)?;
    // bytes cannot change; of anything else a copy is read.
    let copied;
    let bytes: &[u8] = match data.extract::<&[u8]>() {
        Ok(bytes) => bytes,
        Err(_) => {
            copied = PyBuffer::<u8>::get(data)?.to_vec(py)?;
            &copied
        }
    };
    let read = py.detach(|| -> inbloom::Result<Option<inbloom::Filter>> {
        if let Some(format) = Format::recognize(bytes)? {
            return Container::from(format).read(bytes).map(Some);
        }
        let mut reader = Cursor::new(bytes);
        let filter = OpenOptions::new().secret(key.as_ref()).read_shards_from(&mut reader)?;
        Ok((reader.position() == bytes.len() as u64).then_some(filter))
    });
    match read.map_err(|error| raised(py, error))? {
        Some(filter) => Ok(Filter::new_from(filter)),
        None => {
            let text =
                "other bytes follow the filter: pass the bytes of one filter only".to_string();
            Err(exception(py, "FormatError", text))
        }
    }
}

/// Builds a filter from all of its keys at once.
///
/// The static kind "ribbon" takes the fewest bits, and no keys later. Other kinds are planned for
/// the number of keys given and filled. Keys are anything that Filter.add_many takes, or any
/// iterable.
///
/// >>> import inbloom
/// >>> names = inbloom.build(["alice", "bob", "carol"], rate=1e-6)
/// >>> "bob" in names, "dave" in names
/// (True, False)
#[pyfunction]
#[pyo3(signature = (
    keys, rate = None, kind = "ribbon", *, int_width = None, seed = None, secret = None, note = None,
))]
#[expect(clippy::too_many_arguments, reason = "they are keywords")]
pub fn build(
    py: Python<'_>,
    keys: &Bound<'_, PyAny>,
    rate: Option<f64>,
    kind: &str,
    int_width: Option<u32>,
    seed: Option<u64>,
    secret: Option<&[u8]>,
    note: Option<&str>,
) -> PyResult<Filter> {
    let failing = |error| raised(py, error);
    let kind: Kind = kind.parse().map_err(failing)?;
    let hasher = hasher(py, kind, seed, secret)?;
    let empty = Plan::builder(Kind::default()).items(1).build().map_err(failing)?;
    let mut form = inbloom::Filter::new(empty).map_err(failing)?;
    set_int_width(py, &mut form, int_width)?;
    let takes = Keys::of(&form);
    let batch = Batch::of(keys, &takes)?;
    let mut hashed = Hashed { hasher, digests: Vec::with_capacity(batch.rows()) };
    batch.visit(py, &takes, &mut hashed).map_err(|stopped| failed(py, stopped, 0))?;
    let built = py.detach(|| {
        let mut builder = Plan::builder(kind).items((hashed.digests.len() as u64).max(1));
        if let Some(rate) = rate {
            builder = builder.rate(rate);
        }
        inbloom::Filter::build(builder.build()?, hasher, &hashed.digests)
    });
    let mut filter = built.map_err(failing)?;
    set_int_width(py, &mut filter, int_width)?;
    filter.set_note(note.unwrap_or_default()).map_err(failing)?;
    Ok(Filter::new_from(filter))
}

/// Hashes the keys of a batch.
struct Hashed {
    hasher: Hasher,
    digests: Vec<Digest>,
}

impl Visitor for Hashed {
    fn keys<K: inbloom::AsKey>(&mut self, keys: &[K]) -> Result<(), Problem> {
        keys.iter().for_each(|key| self.hasher.append_digests(key, &mut self.digests));
        Ok(())
    }

    /// A row without a key adds none.
    fn spread(&mut self, _: &[bool]) {}
}
