//! `inbloom plan`.

use inbloom::Kind;
use serde_json::Value;

use crate::cli::folder::Folder;

fn kind<'a>(plan: &'a Value, name: &str) -> &'a Value {
    let kinds = plan["kinds"].as_array().expect("a list");
    kinds.iter().find(|kind| kind["kind"] == name).expect("every kind is listed")
}

#[test]
fn plan_knows_the_ten_billion_key_list() {
    let folder = Folder::new();
    let plan = folder.run("plan -n 10e9 -p 1e-4 --json").expect(0).json();
    let classic = kind(&plan, "classic");
    assert_eq!(classic["items"], 10_000_000_000_u64);
    assert_eq!(classic["probes"], 13);
    let bits = classic["bits_per_key"].as_f64().expect("a number");
    assert!((19.17..19.19).contains(&bits), "{bits}");
    assert_eq!(classic["cache_lines"], 13);
    assert!(kind(&plan, "bitmap")["refused"].as_str().expect("why").contains("universe"));
    let blocked = kind(&plan, "blocked");
    assert!(blocked["bytes"].as_u64() <= Some(30_000_000_000), "within 30 GB: {blocked}");

    let text = folder.run("plan -n 10e9 -p 1e-4").expect(0).text();
    for expected in ["bitmap ", "universe", "classic ", "blocked ", "24.0 GB", "100% ", "200% "] {
        assert!(text.contains(expected), "no '{expected}' in:\n{text}");
    }
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");
}

#[test]
fn shards_of_two_widths_begin_at_two_to_the_23_keys_as_the_readme_says() {
    let folder = Folder::new();
    let bits = |keys: u64| {
        let plan = folder.run(&format!("plan -n {keys} -p 1e-4 --json")).expect(0).json();
        kind(&plan, "ribbon")["bits_per_key"].as_f64().expect("a number")
    };
    let (before, behind) = (bits((1 << 23) - 1), bits(1 << 23));
    assert!(before > 14.0 && behind < 13.6, "{before} and {behind}");
}

#[test]
fn plan_computes_what_is_missing() {
    let folder = Folder::new();
    let plan = |arguments: &str| folder.run(&format!("plan --json {arguments}")).expect(0).json();
    let number = |value: &Value| value.as_f64().expect("a number");

    // 25 GB for ten billion keys, with 14 probes: 0.0067%.
    let rate =
        number(&kind(&plan("-n 10G --bytes 25G --probes 14 --kind classic"), "classic")["rate"]);
    assert!((0.66e-4..0.68e-4).contains(&rate), "{rate}");
    let tier = number(&kind(&plan("-n 1M --tier small"), "classic")["rate"]);
    assert!((0.0215..0.0217).contains(&tier), "{tier}");
    let bits = number(&kind(&plan("-n 1M --bits-per-key 8"), "classic")["rate"]);
    assert_eq!(bits, tier);
    let items = number(&kind(&plan("--bytes 1M -p 1%"), "classic")["items"]);
    assert!((830_000.0..836_000.0).contains(&items), "8e6 bits / 9.585 = {items}");
    let default = plan("-n 1M");
    assert_eq!(kind(&default, "blocked")["rate"], 0.01);
    let bitmap = plan("-n 1M -p 0.01 --universe 10M");
    assert_eq!(kind(&bitmap, "bitmap")["bytes"], 1_250_000);
    assert_eq!(kind(&bitmap, "blocked")["items"], 1_000_000);
    assert_eq!(plan("-n 5 --kind blocked")["kinds"].as_array().map(Vec::len), Some(1));
}

#[test]
fn the_curve_rises_through_the_promise() {
    let folder = Folder::new();
    let plan = folder.run("plan -n 1M -p 0.001 --json").expect(0).json();
    for name in ["classic", "blocked"] {
        let curve = kind(&plan, name)["curve"].as_array().expect("a list").clone();
        let rates: Vec<f64> = curve.iter().map(|p| p["rate"].as_f64().expect("a rate")).collect();
        assert!(rates.is_sorted(), "{name}: {rates:?}");
        let at_capacity = curve.iter().find(|point| point["items"] == 1_000_000.0).expect("100%");
        assert!(at_capacity["rate"].as_f64() <= Some(0.001), "{name}: {at_capacity}");
        assert!(rates[0] < 0.000_01 && rates[rates.len() - 1] > 0.01, "{name}: {rates:?}");
    }
}

#[test]
fn a_plan_that_no_kind_can_follow_is_an_error() {
    let folder = Folder::new();
    for (arguments, words) in [
        ("", ["nothing gives the size", "-n 1M", "--bytes", "--universe"]),
        ("--kind classic", ["nothing gives the size", "-n 1M", "--bytes", "-m"]),
        ("-p 0.01", ["the rate of a filter, not its size", "-n 1M", "--bytes", "-m"]),
        ("-k 7", ["the rate of a filter, not its size", "-n 1M", "--bytes", "-m"]),
    ] {
        folder.run(&format!("plan {arguments}")).expect_error(&words);
    }
    let impossible = "plan -n 1M --bytes 1k -p 1e-6";
    folder.run(impossible).expect_error(&["no kind", "\n  bitmap: ", "\n  classic: ", "rate"]);
    folder.run("plan -n 1M --kind bitmap").expect_error(&["universe"]);
    folder.run("plan --kind classic --universe 5 -n 5").expect_error(&["universe"]);
    folder.run("plan -n 1e15 --bits-per-key 400").expect_error(&["bits", "the limit is"]);
}

#[test]
fn plan_compares_every_kind_and_says_what_is_particular() {
    let folder = Folder::new();
    let text = folder.run("plan -n 1M -p 0.001").expect(0).text();
    for kind in Kind::offered() {
        let row = text.lines().find(|line| line.split(' ').next() == Some(kind.name()));
        let row = row.unwrap_or_else(|| panic!("no {kind} in:\n{text}"));
        assert!(kind == Kind::Bitmap || row.contains("0.100%"), "{row}");
    }
    assert!(
        text.contains("window keeps the last 1,000,000 keys, and drops the oldest in 4 steps"),
        "{text}"
    );
    assert!(text.contains("scalable starts at this size"), "{text}");
    let full: Vec<&str> = text.lines().filter(|line| line.contains("%     full ")).collect();
    assert_eq!(full.len(), 2, "a cuckoo filter does not take half as many again: {full:?}");
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");

    let plan = "plan -n 1M -p 0.001 --json --window 7d --generations 7 --width 2 --growth 8";
    let plan = folder.run(plan).expect(0).json();
    let (window, counting) = (kind(&plan, "window"), kind(&plan, "counting"));
    assert_eq!((&window["window_ms"], &window["generations"]), (&604_800_000.into(), &7.into()));
    assert_eq!((&window["forget"], &window["cache_lines"]), (&true.into(), &8.into()));
    assert_eq!((&counting["width"], &counting["growth"]), (&2.into(), &Value::Null));
    let scalable = kind(&plan, "scalable");
    assert_eq!((&scalable["growth"], &scalable["grow"]), (&8.into(), &true.into()));
    let cuckoo = kind(&plan, "cuckoo");
    assert_eq!((&cuckoo["probes"], &cuckoo["remove"]), (&Value::Null, &true.into()));
    assert_eq!(cuckoo["curve"][5]["rate"], Value::Null, "full");
    assert_eq!(kind(&plan, "blocked")["width"], Value::Null);
}

#[test]
fn options_of_other_kinds_are_refused() {
    let folder = Folder::new();
    for (arguments, words) in [
        ("--kind blocked --width 4", ["blocked cannot choose a width", "only kind counting"]),
        ("--kind cuckoo --width 4", ["cuckoo cannot choose a width", "only kind counting"]),
        ("--kind counting --width 5", ["width is 5", "2, 3, 4 or 8"]),
        ("--kind counting --growth 2", ["counting cannot grow", "scalable"]),
        ("--kind scalable --growth 3", ["growth is 3", "2, 4 or 8, or 0"]),
        ("--kind scalable --window 5", ["scalable cannot drop", "window"]),
        ("--kind blocked --window 7d", ["blocked cannot drop", "window"]),
        ("--kind classic --generations 2", ["classic cannot drop", "window"]),
        ("--kind window --window 7d --generations 65", ["generations is 65", "1 to 64"]),
        ("--kind window --window 3ms --generations 4", ["window is 3", "at least as long"]),
        ("--kind window --window 7y", ["'7y'", "7d, 12h, 30m"]),
        ("--kind window --window 5 --universe 5", ["cannot take a universe", "number of keys"]),
    ] {
        let n = if arguments.contains("--window 5") { "" } else { "-n 100" };
        folder.run(&format!("plan {n} {arguments}")).expect_error(&words);
        folder.run(&format!("build {n} -o f.ib {arguments}")).expect_error(&words);
    }
    folder.run("build -o f.ib --kind window").expect_error(&["needs the window"]);
    folder.run("plan --kind window -n 100 --window 50").expect_error(&["items is 100"]);
    assert!(folder.names().is_empty(), "nothing was written");
}

#[test]
fn any_two_of_keys_rate_memory_and_probes_give_the_rest() {
    let folder = Folder::new();
    let classic = |arguments: &str| {
        let plan = folder.run(&format!("plan --json {arguments}")).expect(0).json();
        kind(&plan, "classic").clone()
    };
    let number = |plan: &Value, name: &str| plan[name].as_f64().expect("a number");
    // k probes are best at the rate 2^-k, with k / ln 2 bits per key.
    let best = 7.0 / f64::ln(2.0);

    let (n, p) = (classic("-n 1M -p 0.0078125"), classic("-n 1M -k 7"));
    assert_eq!((&n["probes"], &p["probes"]), (&7.into(), &7.into()));
    assert_eq!((&n["bits"], &n["rate"]), (&p["bits"], &p["rate"]));
    assert!((number(&p, "bits_per_key") / best - 1.0).abs() < 0.001, "{p}");

    let m = classic("-m 10M -k 7");
    assert_eq!((&m["bits"], &m["rate"]), (&10_000_000.into(), &0.007_812_5.into()));
    assert!((number(&m, "items") / (10e6 / best) - 1.0).abs() < 0.001, "{m}");
    assert_eq!(m["items"], classic("-m 10M -p 0.0078125")["items"]);

    // Keys and memory give the rate, whatever the probes.
    let given = classic("-n 1M -m 10M -k 3");
    let expected = f64::powi(1.0 - f64::exp(-0.3), 3);
    assert!((number(&given, "rate") / expected - 1.0).abs() < 0.001, "{given}");
    assert_eq!(classic("-n 1M -m 10M")["rate"], classic("-n 1M --bytes 1250k")["rate"]);

    let text = folder.run("plan -n 1M -k 7").expect(0).text();
    assert!(text.contains("-k 7 stands for the rate 2^-7 = 0.781%"), "{text}");
    assert!(text.contains("blocked   probes is 7, but must be 4, 8, 12 or 16"), "{text}");
    assert!(text.contains("cuckoo    kind cuckoo cannot choose its probes"), "{text}");
    folder.run("plan -n 1M -m 7").expect_error(&["'7'", "at least 8"]);
    folder.run("plan -n 1M -m 1M --bytes 5").expect_error(&["--bytes"]);
}

#[test]
fn a_rate_and_probes_tell_what_a_key_takes() {
    let folder = Folder::new();
    for (arguments, bits) in [("-p 0.01 -k 7", 9.59), ("-p 0.01 -k 3", 12.37)] {
        let text = folder.run(&format!("plan {arguments}")).expect(0).text();
        assert!(text.contains("the same for any large number of keys"), "{text}");
        assert!(!text.contains("memory") && !text.contains("1.00G"), "no totals: {text}");
        let plan = folder.run(&format!("plan --json {arguments}")).expect(0).json();
        let classic = kind(&plan, "classic");
        let per_key = classic["bits_per_key"].as_f64().expect("a number");
        assert!((per_key / bits - 1.0).abs() < 0.002, "{per_key}");
        for total in ["items", "bits", "bytes"] {
            assert_eq!(classic[total], Value::Null, "{classic}");
        }
        assert_eq!(classic["curve"][3]["share"], 1.0);
    }
    let rate = folder.run("plan --json --bits-per-key 8 -k 4 --kind classic").expect(0).json();
    let expected = f64::powi(1.0 - f64::exp(-0.5), 4);
    let rate = kind(&rate, "classic")["rate"].as_f64().expect("a number");
    assert!((rate / expected - 1.0).abs() < 0.001, "{rate}");
}

#[test]
fn csv_has_the_names_of_the_json_fields_and_a_line_for_each_kind() {
    let folder = Folder::new();
    let text = folder.run("plan -n 1M -p 0.001 --csv").expect(0).text();
    let plan = folder.run("plan -n 1M -p 0.001 --json").expect(0).json();
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().expect("names").split(',').collect();
    let blocked = kind(&plan, "blocked").as_object().expect("an object").clone();
    for name in blocked.keys().filter(|name| *name != "curve") {
        assert!(names.contains(&name.as_str()), "no {name} in {names:?}");
    }
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), Kind::offered().count());
    for row in rows.iter().filter(|row| row[0] != "bitmap") {
        assert_eq!(row.len(), names.len(), "{row:?}");
        for (name, cell) in names.iter().zip(row) {
            let expected = match &kind(&plan, row[0])[*name] {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            assert_eq!(*cell, expected, "{name} of {}", row[0]);
        }
    }
    let bitmap = text.lines().find(|line| line.starts_with("bitmap")).expect("a line");
    let empty = ",".repeat(names.len() - 1);
    assert!(bitmap.starts_with(&format!("bitmap{empty}\"a plan for kind bitmap")), "{bitmap}");
    assert!(bitmap.ends_with("possible integers\""), "the reason has a comma: {bitmap}");
    folder.run("plan -n 1M --csv --json").expect_error(&["--csv", "--json"]);
}

#[test]
fn tightening_is_for_scalable_filters() {
    let folder = Folder::new();
    let plan = folder.run("plan -n 1M --tightening 0.5 --json").expect(0).json();
    assert_eq!(kind(&plan, "scalable")["tightening"], 0.5);
    assert_eq!(kind(&plan, "blocked")["tightening"], Value::Null);
    let plan = "plan -n 1M --kind scalable --tightening";
    folder.run(&format!("{plan} 0.1")).expect_error(&["tightening is 0.1", "0.5 to 0.99"]);
    folder.run("plan -n 1M --kind blocked --tightening 0.8").expect_error(&["cannot grow"]);
    let built = "build --kind scalable --tightening 0.9 -o f.ib";
    folder.run_with(built, "alice\n").expect(0);
    assert_eq!(folder.info("f.ib")["tightening"], 0.9);
}

#[test]
fn the_curves_are_plotted_with_a_letter_for_each_kind() {
    let folder = Folder::new();
    for arguments in ["-n 1M -p 0.001", "-n 10 -p 1e-9", "-n 1e12 --tier small", "-n 5 -p 0.9"] {
        let text = folder.run(&format!("plan {arguments}")).expect(0).text();
        let legend = text.lines().last().expect("a legend");
        for kind in ["c classic", "b blocked", "n counting", "w window", "--- target rate"] {
            assert!(legend.contains(kind), "{text}");
        }
        assert!(text.contains("200% of the planned keys"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    }
    let bitmap = folder.run("plan --kind bitmap --universe 10").expect(0).text();
    assert!(!bitmap.contains("planned keys"), "exact, so there is no curve: {bitmap}");
}
