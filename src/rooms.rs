//! Rules of the house: the order of the rooms (nothing imports from a room above its own), and how errors
//! pass through (see `pg::witness`).

use std::fs;
use std::path::Path;

/// From the lowest to the highest. Files of `elements/` stand at the height of those who use them.
const ORDER: [&[&str]; 9] = [
    &["pg"],
    &["key", "elements/index", "elements/key", "elements/json"],
    &["state"],
    &["feed"],
    &["image"],
    &["upkeep"],
    &["am", "elements/quals", "elements/streams", "elements/tids"],
    &["inspect"],
    &["planner", "elements/rewrite", "elements/predicates", "elements/selectivity"],
];

/// The height of `room/file` or of `room`.
fn height(path: &str) -> Option<usize> {
    ORDER.iter().position(|rooms| {
        rooms.iter().any(|room| path == *room || path.starts_with(&format!("{room}/")))
    })
}

/// What a source file names of this crate, as paths below `src/`.
fn imports(source: &str) -> Vec<String> {
    let code: Vec<&str> = source.lines().filter(|l| !l.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let mut all = Vec::new();
    for rest in code.split("crate::").skip(1) {
        let end = rest.find(|c: char| !(c.is_alphanumeric() || "_:".contains(c)));
        let (path, rest) = rest.split_at(end.unwrap_or(rest.len()));
        let Some(list) = rest.strip_prefix('{') else {
            all.push(path.to_owned());
            continue;
        };
        // `room::{a, b::{c, d}}` names room/a and room/b.
        let (mut depth, mut item) = (0, String::new());
        for c in list.chars() {
            match c {
                '}' if depth == 0 => break,
                ',' if depth == 0 => all.push(format!("{path}{}", std::mem::take(&mut item))),
                '{' => depth += 1,
                '}' => depth -= 1,
                c if depth == 0 && !c.is_whitespace() => item.push(c),
                _ => (),
            }
        }
        all.push(format!("{path}{item}"));
    }
    all.into_iter().map(|p| p.replace("::", "/").trim_matches('/').to_owned()).collect()
}

/// Every source file of the library by its name without suffix, and its text.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut folders, mut all) = (vec![root.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("src/ is readable") {
            let path = entry.expect("src/ is readable").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(&root).expect("below src/").with_extension("");
            let name = name.to_str().expect("file names are ASCII").to_owned();
            all.push((name, fs::read_to_string(&path).expect("src/ is readable")));
        }
    }
    all.retain(|(name, _)| name != "rooms");
    all
}

#[test]
fn no_room_imports_from_above() {
    let mut wrong = Vec::new();
    for (name, source) in sources() {
        // `elements/mod.rs` only lists what is in the room.
        if ["lib", "elements/mod"].contains(&name.as_str()) {
            continue;
        }
        let own = height(&name).unwrap_or_else(|| panic!("src/{name}.rs is in no room"));
        for import in imports(&source) {
            if height(&import).is_some_and(|other| other > own) {
                wrong.push(format!("src/{name}.rs imports {import}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn errors_pass_through_whole() {
    let mut wrong = Vec::new();
    for (name, source) in sources() {
        let callbacks =
            source.matches("#[pg_guard]\n").count() + source.matches("#[pg_extern]\n").count();
        if callbacks != source.matches("crate::pg::witness!();").count() {
            wrong.push(format!(
                "src/{name}.rs: not every function that the server calls begins with witness!()"
            ));
        }
        let bindings =
            ["pgrx::log!", "pgrx::warning!", "pgrx::error!", "ereport!", "ErrorReport::new"];
        for other in bindings.iter().filter(|other| source.contains(**other)) {
            wrong
                .push(format!("src/{name}.rs: {other} loses encoding and location, use pg::error"));
        }
        if name != "pg/witness" && source.contains("to_string_lossy") {
            wrong.push(format!(
                "src/{name}.rs: text of the server is not always UTF-8, use pg::text"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn imports_are_seen() {
    let source = "use crate::am;\nuse crate::{image::load, pg};\nuse crate::state::{open, handle::{A, B}};\nlet x = crate::upkeep::worker::start();\n// crate::planner";
    assert_eq!(
        imports(source),
        ["am", "image/load", "pg", "state/open", "state/handle", "upkeep/worker/start"]
    );
}
