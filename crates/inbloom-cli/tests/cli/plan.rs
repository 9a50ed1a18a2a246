//! `inbloom plan`.

use inbloom::Kind;
use serde_json::Value;

use crate::folder::Folder;

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
fn plan_computes_what_is_missing() {
    let folder = Folder::new();
    let plan = |arguments: &str| folder.run(&format!("plan --json {arguments}")).expect(0).json();
    let number = |value: &Value| value.as_f64().expect("a number");

    // 25 GB for ten billion keys, with 14 probes: 0.0067%.
    let rate =
        number(&kind(&plan("-n 10G --bytes 25GB --probes 14 --kind classic"), "classic")["rate"]);
    assert!((0.66e-4..0.68e-4).contains(&rate), "{rate}");
    let tier = number(&kind(&plan("-n 1M --tier small"), "classic")["rate"]);
    assert!((0.0215..0.0217).contains(&tier), "{tier}");
    let bits = number(&kind(&plan("-n 1M --bits-per-key 8"), "classic")["rate"]);
    assert_eq!(bits, tier);
    let items = number(&kind(&plan("--bytes 1MB -p 1%"), "classic")["items"]);
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
    folder.run("plan").expect_error(&["no kind", "\n  bitmap: ", "\n  classic: ", "items"]);
    folder.run("plan -p 0.01").expect_error(&["items"]);
    folder.run("plan -n 1M --kind bitmap").expect_error(&["universe"]);
    folder.run("plan --kind classic --universe 5 -n 5").expect_error(&["universe"]);
    folder.run("plan -n 1e15 --bits-per-key 400").expect_error(&["bits", "at most"]);
    folder.run("plan -n 1M --bytes 1kB -p 1e-6").expect_error(&["rate"]);
}

#[test]
fn plan_compares_every_kind_and_says_what_is_particular() {
    let folder = Folder::new();
    let text = folder.run("plan -n 1M -p 0.001").expect(0).text();
    for kind in Kind::ALL {
        let row = text.lines().find(|line| line.split(' ').next() == Some(kind.name()));
        let row = row.unwrap_or_else(|| panic!("no {kind} in:\n{text}"));
        assert!(*kind == Kind::Bitmap || row.contains("0.100%"), "{row}");
    }
    assert!(
        text.contains("window keeps the last 1,000,000 keys, and forgets in 4 steps"),
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
        ("--kind blocked --width 4", ["blocked cannot choose a width", "counters"]),
        ("--kind cuckoo --width 4", ["cuckoo cannot choose a width", "rate"]),
        ("--kind counting --width 3", ["width is 3", "2, 4 or 8"]),
        ("--kind counting --growth 2", ["counting cannot grow", "scalable"]),
        ("--kind scalable --growth 3", ["growth is 3", "2, 4 or 8, or 0"]),
        ("--kind scalable --window 5", ["scalable cannot forget", "window"]),
        ("--kind blocked --window 7d", ["blocked cannot forget", "window"]),
        ("--kind classic --generations 2", ["classic cannot forget", "window"]),
        ("--kind window --window 7d --generations 65", ["generations is 65", "1 to 64"]),
        ("--kind window --window 3ms --generations 4", ["window is 3", "at least as long"]),
        ("--kind window --window 7w", ["'7w'", "7d, 12h, 30min"]),
        ("--kind window --window 5 --universe 5", ["universe", "bitmap"]),
    ] {
        let n = if arguments.contains("--window 5") { "" } else { "-n 100" };
        folder.run(&format!("plan {n} {arguments}")).expect_error(&words);
        folder.run(&format!("build {n} -o f.ib {arguments}")).expect_error(&words);
    }
    folder.run("build -o f.ib --kind window").expect_error(&["needs the window"]);
    folder.run("plan --kind window -n 100 --window 50").expect_error(&["items is 100"]);
    assert!(folder.names().is_empty(), "nothing was written");
}
