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
use crate::{numbers, output};

/// Convert a filter between file formats
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The filter's file; its format is recognized by its content
    #[arg(value_name = "IN")]
    input: PathBuf,

    /// File to write; replaced only when it is complete
    #[arg(value_name = "OUT")]
    output: PathBuf,

    /// The format to write
    #[arg(long, value_name = "FORMAT", default_value = OURS, value_parser = target_parser())]
    to: Target,

    /// A variant of the format to write: json or gob for go, gzip for dcso; may be given more than
    /// once
    #[arg(long, value_name = "V", value_delimiter = ',')]
    to_variant: Vec<String>,

    /// Record in our own format how the bytes of keys are made from text
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
    let ours = PossibleValue::new(OURS).help("our own, which holds every filter");
    let described = |format: Format| PossibleValue::new(format.name()).help(format.title());
    let formats = Format::all().map(described);
    PossibleValuesParser::new(std::iter::once(ours).chain(formats)).map(|name| {
        Target((name != OURS).then(|| name.parse().expect("the name is one of Format::all")))
    })
}

const AFTER_HELP: &str = "\
A filter is bits and a hash that finds them. Converting changes the file around them, not the hash:
a filter of Guava can be kept in a file of ours, with a checksum and the encoding of its keys, and
go back to Guava. It cannot become a filter of Go, nor can a filter of ours: for that build it from
its keys, 'inbloom build --format go'.

Formats are recognized by their content. Where that could be several, --from says which; what it
does not tell is said by --variant: 'fnv' for filters of Go's library before version 2.0.1, which
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
                "our own format has no variants: give --to, or leave --to-variant out"
            );
            None
        }
    };
    filter.set_container(target).with_context(named)?;
    match (args.key_encoding, target) {
        (None, _) => {}
        (Some(_), Some(target)) => bail!(
            "files of {} do not record how keys are encoded: leave --key-encoding out",
            target.format(),
        ),
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
                output::say(format_args!(
                    "warning: files of {} have no place for the {what}, which is left out: {}",
                    target.format(),
                    output::printable(text),
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
        "its keys are recorded as {recorded}, not {encoding}: leave --key-encoding out"
    );
    ensure!(
        filter.plan().kind().is_foreign() || encoding == KeyEncoding::Utf8,
        "the keys of a filter of ours are what 'inbloom build --key-encoding' has made of them: \
         leave --key-encoding out"
    );
    filter.set_key_encoding(encoding.name())?;
    Ok(())
}
