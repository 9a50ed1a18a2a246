//! A kind that no line of the command line names: it is a folder and a row of the library.

use crate::cli::folder::{Folder, numbers};

#[test]
fn a_kind_that_is_only_a_row_is_planned_built_checked_and_described() {
    let folder = Folder::new();
    let plan = folder.run("plan --kind prints -n 3000 -p 1e-9").expect(0).text();
    assert!(plan.contains("prints") && plan.contains("64.00") && plan.contains("24,000"), "{plan}");
    let all = folder.run("plan -n 3000 -p 1e-3").expect(0).text();
    assert!(!all.contains("prints"), "an example is not offered: {all}");

    folder.run_with("build --kind prints -p 1e-9 -o some.ib", numbers(0, 3000)).expect(0);
    let found = folder.run_with("check some.ib", numbers(2000, 5000)).expect(0);
    assert_eq!(found.stdout, numbers(2000, 3000).as_bytes());

    let info = folder.run("info --verify some.ib").expect(0).text();
    for row in ["kind            prints", "planned keys    3,000", "slots in use    3,000 (100%)"] {
        assert!(info.contains(row), "no {row:?} in:\n{info}");
    }
    folder.run_with("build --kind prints -n 3000 -o more.ib", numbers(2000, 4000)).expect(0);
    folder.run("merge -o all.ib some.ib more.ib").expect(0);
    let found = folder.run_with("check all.ib", numbers(0, 9000)).expect(0);
    assert_eq!(found.stdout, numbers(0, 4000).as_bytes());
}
