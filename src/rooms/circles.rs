//! The rooms of the engine, circles of files in both crates, and where types have their methods.
//!
//! A *unit* is a file with the folder of its name, if there is one: `scan/cursor.rs` and
//! `scan/cursor/`. Each type has its methods in the unit that defines it. A call of a method needs
//! no import. But it leads only to the unit of a type that the caller, or a file below it, imports.
//! So a circle of calls is a circle of imports.

use super::{imports, sources_of};
use std::collections::{BTreeMap, BTreeSet};

/// The rooms of the engine, from the lowest to the highest.
const ENGINE: [&str; 13] = [
    "sync", "simd", "key", "memory", "packed", "node", "index", "tree", "scan", "build", "collect",
    "check", "reverse",
];

/// Returns the source files of a crate, without comments, tests and code for tests.
fn code_of(root: &str) -> BTreeMap<String, String> {
    let all = sources_of(root).into_iter();
    let all = all.filter(|(name, _)| !name.starts_with("tests/") && name != "lib");
    all.map(|(name, source)| (name, without_tests(&source))).collect()
}

/// Removes comments, and modules of tests in the file.
fn without_tests(source: &str) -> String {
    let (mut code, mut skipping, mut test) = (String::new(), false, false);
    for line in source.lines().filter(|line| !line.trim_start().starts_with("//")) {
        if skipping {
            skipping = line != "}";
            continue;
        }
        if test && line.starts_with("mod ") && line.ends_with('{') {
            skipping = true;
        } else {
            // The visibility is no import.
            code.push_str(&line.replace("pub(in crate::", "pub(in "));
            code.push('\n');
        }
        test = line.starts_with("#[cfg(") && line.contains("test");
    }
    code
}

/// The unit of a file.
fn unit<'a>(file: &'a str, files: &BTreeMap<String, String>) -> &'a str {
    let ends = file.match_indices('/').map(|(at, _)| &file[..at]);
    ends.into_iter().find(|folder| files.contains_key(*folder)).unwrap_or(file)
}

/// The file that an import leads to, if it is one of these.
fn target(import: &str, files: &BTreeMap<String, String>) -> Option<String> {
    let mut path = import;
    loop {
        let room = format!("{path}/mod");
        if let Some(file) = [path, &room].into_iter().find(|name| files.contains_key(*name)) {
            return Some(file.to_owned());
        }
        path = path.rsplit_once('/')?.0;
    }
}

/// Which units each unit imports.
fn graph(files: &BTreeMap<String, String>) -> BTreeMap<String, BTreeSet<String>> {
    let mut graph = BTreeMap::<_, BTreeSet<String>>::new();
    for (name, code) in files {
        let mut named = imports(name, code);
        // A room hands out what is in its files.
        if let Some(room) = name.strip_suffix("/mod") {
            let uses = code.lines().filter_map(|line| line.split_once("use "));
            let uses = uses.filter_map(|(_, path)| path.split_once("::"));
            named.extend(uses.map(|(first, _)| format!("{room}/{first}")));
        }
        let from = unit(name, files);
        let to = named.iter().filter_map(|import| target(import, files));
        let to = to.map(|file| unit(&file, files).to_owned()).filter(|to| to != from);
        graph.entry(from.to_owned()).or_default().extend(to);
    }
    graph
}

/// The units that are on a way from themselves to themselves.
fn in_circles(graph: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<&String> {
    let reached = |start: &String| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![start]);
        while let Some(at) = next.pop() {
            next.extend(graph.get(at).into_iter().flatten().filter(|to| seen.insert(*to)));
        }
        seen.contains(start)
    };
    graph.keys().filter(|start| reached(start)).collect()
}

/// The types and traits that some code defines.
fn defined(code: &str) -> BTreeSet<&str> {
    let words = ["struct ", "enum ", "union ", "trait ", "type "];
    let lines = code.lines().map(str::trim_start);
    let found = lines.filter(|line| !line.starts_with("impl")).flat_map(|line| {
        words.iter().filter_map(move |word| {
            let (before, rest) = line.split_once(word)?;
            let visible = before.is_empty() || before.starts_with("pub") || before == "unsafe ";
            visible.then_some(rest)
        })
    });
    let end = |rest: &str| rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
    found.map(|rest| &rest[..end(rest).unwrap_or(rest.len())]).collect()
}

/// Of each `impl` at the beginning of a line: its trait, if it is one of a trait, and its type;
/// names without paths.
fn impls(code: &str) -> Vec<(Option<&str>, &str)> {
    let heads = code.lines().filter_map(|line| {
        let head = line.strip_prefix("unsafe ").unwrap_or(line).strip_prefix("impl")?;
        head.starts_with([' ', '<']).then_some(head)
    });
    heads
        .map(|head| {
            // Behind the parameters.
            let mut depth = 0;
            let behind = head.find(|c| {
                depth += i32::from(c == '<') - i32::from(c == '>');
                depth == 0 && c != '>'
            });
            let head = &head[behind.unwrap_or(0)..];
            match head.split_once(" for ") {
                Some((of, to)) => (Some(last_name(of)), last_name(to)),
                None => (None, last_name(head)),
            }
        })
        .collect()
}

/// The last name of a path, without what is behind it.
fn last_name(path: &str) -> &str {
    let path = path.trim_start_matches([' ', '&']);
    let end = path.find(|c: char| !(c.is_alphanumeric() || "_:".contains(c)));
    let path = &path[..end.unwrap_or(path.len())];
    path.rsplit("::").next().unwrap_or(path)
}

#[test]
fn no_room_of_the_engine_imports_from_above() {
    let files = code_of("engine/src");
    let height = |path: &str| {
        let room = path.split('/').next();
        ENGINE.iter().position(|known| room == Some(*known))
    };
    let mut wrong = Vec::new();
    for (name, code) in &files {
        let own = height(name).unwrap_or_else(|| panic!("engine/src/{name}.rs is in no room"));
        for import in imports(name, code) {
            match height(&import) {
                Some(other) if other > own => {
                    wrong.push(format!("engine/src/{name}.rs imports {import}"));
                }
                Some(_) => {}
                None => wrong.push(format!("engine/src/{name}.rs imports {import}, of no room")),
            }
            if ENGINE.contains(&import.as_str()) && !files.contains_key(&import) {
                wrong.push(format!("engine/src/{name}.rs imports {import} as a whole"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_circle_of_files() {
    for root in ["engine/src", "src"] {
        let graph = graph(&code_of(root));
        assert!(in_circles(&graph).is_empty(), "circles in {root}: {:?}", in_circles(&graph));
    }
}

/// Which files have methods of types that another unit defines, but for those of a trait of their
/// own unit.
fn methods_elsewhere(files: &BTreeMap<String, String>) -> Vec<String> {
    let mut of = BTreeMap::<_, BTreeSet<&str>>::new();
    for (name, code) in files {
        of.entry(unit(name, files)).or_default().extend(defined(code));
    }
    let mut wrong = Vec::new();
    for (name, code) in files {
        let own = &of[unit(name, files)];
        for (interface, to) in impls(code) {
            if !own.contains(to) && !interface.is_some_and(|interface| own.contains(interface)) {
                wrong.push(format!("{name}.rs has methods of {to}"));
            }
        }
    }
    wrong
}

#[test]
fn types_have_their_methods_where_they_are() {
    for root in ["engine/src", "src"] {
        let wrong = methods_elsewhere(&code_of(root));
        assert!(wrong.is_empty(), "in {root}:\n{}", wrong.join("\n"));
    }
}

/// A block that no other process knows is a `Fresh`: only `node/fresh.rs` has a place for it.
#[test]
fn blocks_are_taken_from_the_allocator_in_one_file() {
    for (name, code) in code_of("engine/src") {
        let allocates =
            code.contains("allocator.alloc(") || code.contains("allocator.alloc_among(");
        assert_eq!(allocates, name == "node/fresh", "engine/src/{name}.rs takes blocks");
    }
}

#[test]
fn circles_and_methods_are_seen() {
    let file = |name: &str, code: &str| (name.to_owned(), without_tests(code));
    let files: BTreeMap<_, _> = [
        file("a/mod", "pub(crate) mod low;\npub use x::X;\n"),
        file("a/low", "use super::x::part;\n// use crate::b;\n"),
        file("a/x", "use super::X;\npub(crate) struct X;\nmod part;\n"),
        file("a/x/part", "use super::*;\nuse crate::b::high;\nimpl<'a> X<'a> {}\n"),
        file(
            "b/high",
            "#[cfg(test)]\nmod tests {\n    use crate::c;\n}\nuse crate::a::{low, x};\n",
        ),
        file("c", "use crate::b::high;\nimpl fmt::Display for crate::a::x::X {}\nimpl Other {}\n"),
    ]
    .into();
    let graph = graph(&files);
    let to = |unit: &str| graph[unit].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(to("a/mod"), ["a/x"]);
    assert_eq!(to("a/low"), ["a/x"]);
    assert_eq!(to("a/x"), ["a/mod", "b/high"]);
    assert_eq!(to("b/high"), ["a/low", "a/x"]);
    let circle: Vec<_> = in_circles(&graph).into_iter().map(String::as_str).collect();
    assert_eq!(circle, ["a/low", "a/mod", "a/x", "b/high"]);
    assert_eq!(methods_elsewhere(&files), ["c.rs has methods of X", "c.rs has methods of Other"]);
    assert_eq!(impls(&files["a/x/part"]), [(None, "X")]);
    assert_eq!(impls(&files["c"]), [(Some("Display"), "X"), (None, "Other")]);
    assert_eq!(defined(&files["a/x"]), ["X"].into());
}
