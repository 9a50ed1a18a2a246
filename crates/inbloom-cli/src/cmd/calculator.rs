//! `inbloom calculator`: the calculator of the page as one file that needs no server.
//!
//! The page is ES modules, which browsers load from servers only. So the modules are put into one script:
//! each becomes a function that returns what it exports, after those that it imports. Only the forms of import
//! and export that the page uses are understood; others are errors, which a test would find.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use inbloom_server::http::page;

use crate::output;

/// Write the calculator of the web page to one file that needs no server.
///
/// The file has the formulas of the kinds classic and blocked. Open it in a browser, or put it on any
/// web server. It loads nothing from elsewhere.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// File to write, replaced if it exists; - for standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  inbloom calculator -o page.html
  inbloom calculator -o - | gzip > page.html.gz

Exit status:
  0  the file was written
  2  an error";

pub fn run(args: &Args) -> Result<ExitCode> {
    let text = standalone(&web_file)?;
    if args.output.as_os_str() == "-" {
        output::print(text.as_bytes())?;
    } else {
        std::fs::write(&args.output, text)
            .with_context(|| format!("cannot write {}", args.output.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A file of the page, by its path.
fn web_file(path: &str) -> Result<String> {
    let file = page::FILES.iter().find(|file| file.path == path);
    let file = file.with_context(|| format!("the page has no file {path}"))?;
    String::from_utf8(file.content.to_vec()).with_context(|| format!("{path} is not UTF-8"))
}

const STYLE: &str = "<link rel=\"stylesheet\" href=\"style.css\">";
/// Nothing may come from elsewhere, whatever is in the script.
const POLICY: &str = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
                      script-src 'unsafe-inline'; style-src 'unsafe-inline'\">";
const SCRIPT: &str = "<script type=\"module\" src=\"standalone.js\"></script>";

/// The page with its style and its script inside.
fn standalone(read: &dyn Fn(&str) -> Result<String>) -> Result<String> {
    let (page, style) = (read("standalone.html")?, read("style.css")?);
    let script = bundle("standalone.js", read)?;
    ensure!(!script.contains("</script"), "a module contains '</script'");
    ensure!(!style.contains("</style"), "the style contains '</style'");
    let mut text = page;
    for (line, inlined) in [
        (STYLE, format!("{POLICY}\n<style>\n{style}</style>")),
        (SCRIPT, format!("<script type=\"module\">\n{script}</script>")),
    ] {
        ensure!(text.matches(line).count() == 1, "standalone.html needs the line {line}");
        text = text.replace(line, &inlined);
    }
    Ok(text)
}

/// Puts a module and all that it imports into one script.
fn bundle(entry: &str, read: &dyn Fn(&str) -> Result<String>) -> Result<String> {
    let mut script = String::new();
    add(entry, read, &mut BTreeSet::new(), &mut BTreeSet::new(), &mut script)?;
    Ok(script)
}

fn add(
    path: &str,
    read: &dyn Fn(&str) -> Result<String>,
    begun: &mut BTreeSet<String>,
    done: &mut BTreeSet<String>,
    script: &mut String,
) -> Result<()> {
    if done.contains(path) {
        return Ok(());
    }
    ensure!(begun.insert(path.to_owned()), "{path} imports itself, by way of others");
    let text = read(path)?;
    let (mut body, mut exports) = (String::new(), Vec::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("import ") || line.starts_with("import{") {
            let mut statement = line.to_owned();
            while !statement.contains(';') {
                let more = lines.next().with_context(|| format!("{path}: {line} has no end"))?;
                statement.push_str(more);
            }
            let (names, from) =
                import(&statement).with_context(|| format!("{path}: {statement}"))?;
            let from = resolve(path, &from)?;
            add(&from, read, begun, done, script)?;
            body.push_str(&format!("const {{ {names} }} = {};\n", variable(&from)));
        } else if let Some(declaration) = line.strip_prefix("export ") {
            let name = declared(declaration).with_context(|| format!("{path}: {line}"))?;
            exports.push(name.to_owned());
            body.push_str(&format!("{declaration}\n"));
        } else {
            body.push_str(&format!("{line}\n"));
        }
    }
    let (name, exports) = (variable(path), exports.join(", "));
    script.push_str(&format!("const {name} = (() => {{\n{body}return {{ {exports} }};\n}})();\n"));
    done.insert(path.to_owned());
    Ok(())
}

/// `import { a, b as c } from "./x.js";` as `a, b: c` and `./x.js`.
fn import(statement: &str) -> Result<(String, String)> {
    let expected = "expected import { a, b as c } from \"./x.js\";";
    let (names, rest) = statement
        .strip_prefix("import")
        .and_then(|it| it.trim_start().strip_prefix('{'))
        .and_then(|it| it.split_once('}'))
        .context(expected)?;
    let from = rest.trim().strip_prefix("from").context(expected)?.trim();
    let from = from.strip_suffix(';').unwrap_or(from).trim().trim_matches('"');
    let rename = |name: &str| name.trim().replace(" as ", ": ");
    let names: Vec<String> = names.split(',').map(rename).filter(|name| !name.is_empty()).collect();
    Ok((names.join(", "), from.to_owned()))
}

/// The name that a declaration behind `export` gives.
fn declared(declaration: &str) -> Result<&str> {
    let rest = ["function* ", "async function ", "function ", "const ", "class "]
        .iter()
        .find_map(|keyword| declaration.strip_prefix(keyword));
    let rest = rest.context("expected export of a function, a const or a class")?;
    let end = rest.find(|it: char| !it.is_alphanumeric() && it != '_' && it != '$');
    let name = &rest[..end.unwrap_or(rest.len())];
    ensure!(!name.is_empty(), "expected a name");
    Ok(name)
}

/// The path of a module that another one imports.
fn resolve(from: &str, relative: &str) -> Result<String> {
    let mut folders: Vec<&str> = from.split('/').collect();
    folders.pop();
    for part in relative.split('/') {
        match part {
            "." => {}
            ".." if folders.pop().is_some() => {}
            ".." => bail!("{relative} leads out of the page"),
            part => folders.push(part),
        }
    }
    ensure!(relative.starts_with('.'), "{relative} is not a relative path");
    Ok(folders.join("/"))
}

/// The name of what a module exports, in the script.
fn variable(path: &str) -> String {
    let letter = |it: char| if it.is_ascii_alphanumeric() { it } else { '_' };
    format!("module_{}", path.chars().map(letter).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundled(files: &[(&str, &str)]) -> Result<String> {
        let read = |path: &str| {
            let file = files.iter().find(|(name, _)| *name == path);
            Ok(file.with_context(|| format!("no {path}"))?.1.to_owned())
        };
        bundle("main.js", &read)
    }

    #[test]
    fn modules_become_one_script_in_order_of_use() {
        let script = bundled(&[
            ("main.js", "import { a, b as c } from \"./sub/x.js\";\nimport {\n  one,\n} from \"./y.js\";\na(c, one);\n"),
            ("sub/x.js", "import { one } from \"../y.js\";\nexport function a() {}\nexport const b = one;\n"),
            ("y.js", "export const one = 1;\n"),
        ])
        .unwrap();
        assert_eq!(
            script,
            "const module_y_js = (() => {\nconst one = 1;\nreturn { one };\n})();\n\
             const module_sub_x_js = (() => {\nconst { one } = module_y_js;\nfunction a() {}\n\
             const b = one;\nreturn { a, b };\n})();\n\
             const module_main_js = (() => {\nconst { a, b: c } = module_sub_x_js;\n\
             const { one } = module_y_js;\na(c, one);\nreturn {  };\n})();\n"
        );
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        for text in [
            "import x from \"./y.js\";",
            "import * as x from \"./y.js\";",
            "import { x } from \"y.js\";",
            "import { x } from \"../../y.js\";",
            "import { x } from \"./none.js\";",
            "import { x } from \"./main.js\";",
            "export default 1;",
            "export { x };",
            "import { x }",
        ] {
            assert!(bundled(&[("main.js", text), ("y.js", "")]).is_err(), "{text}");
        }
    }

    #[test]
    fn the_page_fits_into_one_file() {
        let text = standalone(&web_file).unwrap();
        assert!(!text.contains(STYLE) && !text.contains(SCRIPT) && text.contains("classicRate"));
        for elsewhere in ["src=", "@import", "<link"] {
            assert!(!text.contains(elsewhere), "{elsewhere}");
        }
        let lines =
            text.lines().filter(|line| line.starts_with("import ") || line.starts_with("export "));
        assert_eq!(lines.count(), 0);
    }
}
