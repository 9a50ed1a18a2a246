//! Parquet files: which filters their columns have, and which files can hold some keys.
//!
//! Only footers and filters are read. A file whose column has no filter can hold any key.

use std::fmt::Write;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use inbloom::interop::KeyEncoding;
use inbloom::interop::parquet::{Column, Metadata, ValueType};
use inbloom::{Digest, Filter, Hasher};
use serde_json::json;

use crate::blocks::{BadRecord, Block, InOrder};
use crate::keys::{InputArgs, Keys};
use crate::output::{Problem, problem};
use crate::{numbers, output};

/// Whether a file is a Parquet file, by its first bytes.
pub fn is_parquet(path: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && &magic == b"PAR1"
}

fn open(path: &Path) -> Result<(File, Metadata)> {
    let about = || format!("{}", path.display());
    let mut file = File::open(path).with_context(about)?;
    let metadata = Metadata::read(&mut file).with_context(about)?;
    Ok((file, metadata))
}

/// Prints what filters a Parquet file has: one line for each column and row group.
pub fn info(path: &Path, as_json: bool) -> Result<ExitCode> {
    let (mut file, metadata) = open(path)?;
    let mut columns = Vec::new();
    let mut table = vec![
        ["column", "type", "group", "rows", "bytes", "fill", "distinct", "rate"]
            .map(str::to_string),
    ];
    for (at, column) in metadata.columns.iter().enumerate() {
        let mut filters = Vec::new();
        for (number, group) in metadata.row_groups.iter().enumerate() {
            let filter = group.chunks[at].read_filter(&mut file);
            let filter =
                filter.with_context(|| format!("{}#{}/{number}", path.display(), column.path))?;
            let Some(filter) = filter else { continue };
            let estimate = filter.estimated_items();
            filters.push(json!({
                "row_group": number,
                "rows": group.rows,
                "bytes": filter.bytes(),
                "fill": filter.fill(),
                "estimated_distinct": estimate.items,
                "estimated_error": estimate.error,
                "current_rate": filter.rate(),
            }));
            table.push([
                output::printable(&column.path).into_owned(),
                column.value_type.to_string(),
                number.to_string(),
                numbers::exact(group.rows),
                numbers::exact(filter.bytes()),
                numbers::share(filter.fill()),
                format!("{:.0} +- {:.0}", estimate.items, estimate.error),
                numbers::rate(filter.rate()),
            ]);
        }
        columns.push(json!({
            "column": column.path,
            "type": column.value_type.to_string(),
            "filters": filters,
        }));
    }
    let text = if as_json {
        let file = json!({
            "file": path.to_string_lossy(),
            "rows": metadata.rows,
            "row_groups": metadata.row_groups.len(),
            "columns": columns,
        });
        format!("{file:#}\n")
    } else {
        let counted = |count: usize, name| numbers::counted(count as u64, name);
        let mut text = format!(
            "{} in {}, {}, {}\n",
            numbers::counted(metadata.rows, "row"),
            counted(metadata.row_groups.len(), "row group"),
            counted(metadata.columns.len(), "column"),
            counted(table.len() - 1, "filter"),
        );
        if table.len() > 1 {
            text.push('\n');
            text.push_str(&aligned(&table));
        }
        text
    };
    output::print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The rows of a table in columns as wide as they need.
fn aligned(rows: &[[String; 8]]) -> String {
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; 8] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
            // Names to the left, numbers to the right.
            match at {
                0 | 1 => write!(line, "{cell:width$}  "),
                _ => write!(line, "{cell:>width$}  "),
            }
            .expect("a String takes all text");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// What `check --column` is asked to print.
#[derive(Clone, Copy)]
pub struct Shown {
    pub inverted: bool,
    pub count: bool,
    pub quiet: bool,
    pub json: bool,
}

/// A file, and what its column has.
struct Table {
    name: String,
    file: File,
    metadata: Metadata,
    column: usize,
    /// Which of the types is that of its column.
    value_type: usize,
}

/// Prints the files that can hold any of the keys in a column, each with how many of its row groups.
pub fn check(
    column: &str,
    patterns: &[PathBuf],
    input: &InputArgs,
    shown: Shown,
) -> Result<ExitCode> {
    let mut types: Vec<ValueType> = Vec::new();
    let mut tables = Vec::new();
    for path in expanded(patterns)? {
        let (file, metadata) = open(&path)?;
        let name = path.display().to_string();
        // A file without row groups has no column to be known by, and no key either.
        if metadata.row_groups.is_empty() {
            continue;
        }
        let Some(at) = metadata.column(column) else {
            let names = metadata.columns.iter().map(|column| column.path.as_str());
            let names = names.take(20).collect::<Vec<_>>().join(", ");
            bail!(problem(
                format!("{name}: no column \"{column}\""),
                format!("choose one with --column: {names}")
            ));
        };
        let Column { value_type, .. } = metadata.columns[at];
        let known = types.iter().position(|known| *known == value_type);
        let value_type = known.unwrap_or_else(|| {
            types.push(value_type);
            types.len() - 1
        });
        tables.push(Table { name, file, metadata, column: at, value_type });
    }
    let keys = digests(input, &types)?;
    let mut selected = 0_u64;
    for table in &mut tables {
        let answer = table.ask(&keys)?;
        if answer.groups.is_empty() != shown.inverted {
            continue;
        }
        selected += 1;
        if shown.quiet {
            return Ok(ExitCode::SUCCESS);
        }
        if !shown.count {
            output::print(answer.text(table, shown.json).as_bytes())?;
        }
    }
    if shown.count && !shown.quiet {
        output::print(format!("{selected}\n").as_bytes())?;
    }
    Ok(if selected > 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

struct FileAnswer {
    /// The row groups that can hold any of the keys.
    groups: Vec<usize>,
    /// How many row groups have no filter.
    unfiltered: usize,
    /// How many of the keys any of its row groups can hold.
    keys: usize,
}

impl FileAnswer {
    fn text(&self, table: &Table, as_json: bool) -> String {
        let all = table.metadata.row_groups.len();
        if as_json {
            let fields = json!({
                "file": table.name,
                "row_groups": self.groups,
                "of": all,
                "without_filter": self.unfiltered,
                "keys": self.keys,
            });
            return format!("{fields}\n");
        }
        let name = output::name_beside_data(table.name.as_bytes());
        let name = String::from_utf8_lossy(&name);
        let groups = numbers::counted(all as u64, "row group");
        let without = match self.unfiltered {
            0 => String::new(),
            count if count == all => " (no filters)".to_string(),
            count => format!(" ({count} without a filter)"),
        };
        format!("{name}: {} of {groups}{without}\n", self.groups.len())
    }
}

impl Table {
    fn ask(&mut self, keys: &[Vec<Digest>]) -> Result<FileAnswer> {
        let digests = &keys[self.value_type];
        let mut answer = FileAnswer { groups: Vec::new(), unfiltered: 0, keys: 0 };
        let mut any = vec![false; digests.len()];
        let mut found = Vec::new();
        for (number, group) in self.metadata.row_groups.iter().enumerate() {
            let chunk = &group.chunks[self.column];
            let filter = chunk.read_filter(&mut self.file);
            match filter.with_context(|| format!("{}: row group {number}", self.name))? {
                Some(filter) => filter.contains_digests(digests, &mut found),
                None => {
                    answer.unfiltered += 1;
                    found.clear();
                    found.resize(digests.len(), true);
                }
            }
            if found.contains(&true) {
                answer.groups.push(number);
                any.iter_mut().zip(&found).for_each(|(any, found)| *any |= found);
            }
        }
        answer.keys = any.iter().filter(|any| **any).count();
        Ok(answer)
    }
}

/// Files by their names, or by patterns with * and ? in the last part of the path, which the shell has
/// left to us.
fn expanded(patterns: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for pattern in patterns {
        let last = pattern.file_name().unwrap_or_default().to_string_lossy();
        if pattern.exists() || !last.contains(['*', '?']) {
            paths.push(pattern.clone());
            continue;
        }
        let folder = match pattern.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let entries = fs::read_dir(folder).with_context(|| format!("{}", folder.display()))?;
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.with_context(|| format!("{}", folder.display()))?.file_name();
            let text = name.to_string_lossy();
            if !text.starts_with('.') && fits(last.as_bytes(), text.as_bytes()) {
                found.push(pattern.with_file_name(&name));
            }
        }
        ensure!(!found.is_empty(), "no file matches \"{}\"", pattern.display());
        found.sort();
        paths.extend(found);
    }
    Ok(paths)
}

/// Whether a name fits a pattern of * and ?.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    // Where to go on if what follows the last * does not fit: one byte further.
    let (mut at, mut from) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while from < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[from] => {
                at += 1;
                from += 1;
            }
            _ => match star {
                Some((star_at, taken)) => {
                    star = Some((star_at, taken + 1));
                    at = star_at + 1;
                    from = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// The digests of all keys, for each type of column.
fn digests(input: &InputArgs, types: &[ValueType]) -> Result<Vec<Vec<Digest>>> {
    let (inputs, encoding) = (input.inputs(), input.asked_encoding());
    let keys = Arc::new(input.texts()?);
    let types: Arc<[ValueType]> = types.into();
    let hasher = hasher();
    let count = types.len();
    let work = move |block: &Block, made: &mut Vec<Vec<Digest>>| {
        made.resize_with(types.len(), Vec::new);
        made.iter_mut().for_each(Vec::clear);
        encode(block, &keys, encoding, &types, &hasher, made)
    };
    let mut jobs = InOrder::new(input.reader(&inputs), input.threads(), work);
    let mut all = vec![Vec::new(); count];
    while let Some(job) = jobs.next() {
        let job = job.map_err(|failure| failure.error)?;
        for (all, made) in all.iter_mut().zip(&job.product) {
            all.extend_from_slice(made);
        }
    }
    Ok(all)
}

fn encode(
    block: &Block,
    keys: &Keys,
    encoding: Option<KeyEncoding>,
    types: &[ValueType],
    hasher: &Hasher,
    made: &mut [Vec<Digest>],
) -> Result<(), BadRecord> {
    let mut bytes = Vec::new();
    keys.each(block, |index, key| {
        let Some(key) = key else { return Ok(()) };
        for (value_type, made) in types.iter().zip(&mut *made) {
            bytes.clear();
            let failed = match encoding {
                None => value_type
                    .encode(key, &mut bytes)
                    .err()
                    .map(|error| Problem::from(error.to_string())),
                Some(encoding) => {
                    (!encoding.encode(key, &mut bytes)).then(|| keys.not_encoded(encoding, key))
                }
            };
            match failed {
                None => made.push(hasher.digest(&bytes)),
                Some(problem) => return Err(BadRecord { index: Some(index), problem }),
            }
        }
        Ok(())
    })
}

/// The hash of every filter in a Parquet file.
fn hasher() -> Hasher {
    let format: inbloom::interop::Format = "parquet".parse().expect("a format");
    *Filter::for_format(format.into(), 1, 0.1).expect("a filter of 32 bytes").hasher()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_names() {
        for (pattern, name, expected) in [
            ("*.parquet", "a.parquet", true),
            ("*.parquet", ".parquet", true),
            ("*.parquet", "a.parquet.tmp", false),
            ("part-?.p*t", "part-1.parquet", true),
            ("part-?.p*t", "part-12.parquet", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
            ("*", "anything", true),
            ("?", "", false),
            ("a*ab", "aab", true),
            ("a*ab", "aaab", true),
        ] {
            assert_eq!(fits(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }
}
