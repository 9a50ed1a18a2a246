//! The crawler's question, across restarts: is this path new? Run it with
//! `cargo run --release -p inbloom --example add_if_absent`.

use inbloom::{Filter, Kind, Plan, file};

fn main() -> inbloom::Result<()> {
    let path = std::env::temp_dir().join(format!("inbloom-example-{}.ib", std::process::id()));
    let pages = ["/8/8217/5159455.html", "/8/8217/5159456.html", "/8/8217/5159457.html"];

    let plan = Plan::new(Kind::Blocked).items(1_000_000).rate(1e-4).build()?;
    println!("a million paths at one error in ten thousand take {} bytes", plan.bytes());

    let mut seen = Filter::new(plan)?;
    for page in pages {
        let new = seen.insert(page)?;
        println!("{page}: {}", if new { "new, crawl it" } else { "seen" });
        assert!(new);
    }
    file::save(&seen, &path)?;

    // A later run of the program: open to change, then save as a whole again.
    let mut seen = file::open_mut(&path)?;
    for page in pages {
        let new = seen.insert(page)?;
        println!("{page}: {}", if new { "new, crawl it" } else { "seen" });
        assert!(!new);
    }
    std::fs::remove_file(&path).expect("the file was just saved");
    Ok(())
}
