//! `inbloom convert`: a filter from one file format into another, under the same hash.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use inbloom::Filter;
use inbloom::interop::{Format, KeyEncoding};

use crate::filter_file::{Changed, OpenArgs, container};
use crate::keys::encoding_parser;
use crate::lock::WaitArgs;
use crate::output::problem;
use crate::{numbers, output};

/// Convert a filter between file formats
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The filter's file, whose format is recognized by its content
    #[arg(value_name = "IN")]
    input: PathBuf,

    /// File to write, replaced when it is complete
    #[arg(value_name = "OUT")]
    output: PathBuf,

    /// Format to write
    #[arg(long, value_name = "FORMAT", default_value = OURS, value_parser = target_parser())]
    to: Target,

    /// Variant of the format to write: json or gob for go, gzip for dcso; may be given more than once
    #[arg(long, value_name = "V", value_delimiter = ',')]
    to_variant: Vec<String>,

    /// Encoding of the keys, to record in inbloom's own format
    #[arg(long, value_name = "E", value_parser = encoding_parser())]
    key_encoding: Option<KeyEncoding>,

    #[command(flatten)]
    wait: WaitArgs,

    #[command(flatten)]
    open: OpenArgs,
}

/// What is written: a format of another program, or None for our own.
#[derive(Clone, Copy)]
struct Target(Option<Format>);

/// The name of our own format.
const OURS: &str = "inbloom";

fn target_parser() -> impl TypedValueParser<Value = Target> {
    let ours = PossibleValue::new(OURS).help("inbloom's own format, which holds every filter");
    let described = |format: Format| PossibleValue::new(format.name()).help(format.title());
    let formats = Format::all().map(described);
    PossibleValuesParser::new(std::iter::once(ours).chain(formats)).map(|name| {
        Target((name != OURS).then(|| name.parse().expect("the name is one of Format::all")))
    })
}

const AFTER_HELP: &str = "\
A filter is bits and a hash that finds them. Converting changes the file around them, not the hash.
A Guava filter can be kept in inbloom's format, with a checksum and the encoding of its keys, and be
converted back. It cannot become a Go filter, and neither can an inbloom filter: build that from its
keys with 'inbloom build --format go'.

Formats are recognized by their content. Where several are possible, choose with --from. --variant
says what the content does not show: 'fnv' for filters of Go's library before version 2.0.1, which
hashed otherwise.

Examples:
  inbloom convert users.bloom users.ib --key-encoding i64le     keep how keys were encoded
  inbloom convert users.ib users.bloom --to guava               and back
  inbloom convert seen.json seen.bin --to go                    from JSON to binary
  inbloom convert seen.bin seen.json --to go --to-variant json
  inbloom convert old.bin old.ib --from go --variant fnv
  inbloom convert hashlookup.bloom small.gz --to dcso --to-variant gzip

Exit status:
  0  the filter was written
  2  an error; the output file is as it was before";

pub fn run(args: &Args) -> Result<ExitCode> {
    let mut output = Changed::new(&args.output, args.wait)?;
    // A damaged filter that was saved again would have good checksums.
    args.open.verify(&args.input)?;
    let mut filter = args.open.open_mut(&args.input)?;
    let named = || args.input.display().to_string();
    let target = match args.to.0 {
        Some(format) => Some(container(format, &args.to_variant)?),
        None => {
            ensure!(
                args.to_variant.is_empty(),
                problem(
                    "inbloom's own format has no variants",
                    "name another format with --to, or leave --to-variant out"
                )
            );
            None
        }
    };
    filter.set_container(target).with_context(named)?;
    match (args.key_encoding, target) {
        (None, _) => {}
        (Some(_), Some(target)) => bail!(problem(
            format!("{} files do not record how keys are encoded", target.format()),
            "leave --key-encoding out"
        )),
        (Some(encoding), None) => set_encoding(&mut filter, encoding).with_context(named)?,
    }
    output.save(&filter)?;
    if let Some(target) = target {
        for (what, text) in [
            ("note", filter.note()),
            ("normalization", filter.normalization()),
            ("key encoding", filter.key_encoding()),
        ] {
            if !text.is_empty() {
                output::warn(&problem(
                    format!(
                        "{} files cannot hold the {what} (\"{}\"), which is left out",
                        target.format(),
                        output::printable(text)
                    ),
                    "keep a copy in inbloom's own format if you need it",
                ));
            }
        }
    }
    output::say(format_args!(
        "{}, {}, {}; saved as {}",
        filter.plan().kind(),
        numbers::bytes(filter.bytes()),
        target.map_or(OURS.to_string(), |target| target.to_string()),
        args.output.display(),
    ));
    Ok(ExitCode::SUCCESS)
}

/// Records the encoding of keys. One that is recorded is not replaced: keys would not be found.
fn set_encoding(filter: &mut Filter, encoding: KeyEncoding) -> Result<()> {
    let recorded = filter.key_encoding();
    ensure!(
        recorded.is_empty() || recorded == encoding.name(),
        problem(
            format!("the file records its key encoding as {recorded}, not {encoding}"),
            "leave --key-encoding out"
        )
    );
    ensure!(
        filter.plan().kind().is_foreign() || encoding == KeyEncoding::Utf8,
        problem(
            "the keys of an inbloom filter were encoded when it was built",
            "leave --key-encoding out"
        )
    );
    filter.set_key_encoding(encoding.name())?;
    Ok(())
}
