//! Rules of the house. No room imports from a room above it. Errors pass through `pg::witness`.
//! Only some files may run code of users.

mod circles;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The rooms of the library, from the lowest to the highest.
const ORDER: [&str; 9] =
    ["pg", "key", "state", "feed", "image", "upkeep", "am", "inspect", "planner"];

/// Returns the height of the room of a path.
fn height(path: &str) -> Option<usize> {
    let room = path.split('/').next();
    ORDER.iter().position(|known| room == Some(*known))
}

/// What a source file names of this crate, as paths below `src/`.
fn imports(name: &str, source: &str) -> Vec<String> {
    let code: Vec<&str> = source.lines().filter(|l| !l.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let mut all = Vec::new();
    for word in ["crate::", "super::"] {
        for (at, _) in code.match_indices(word) {
            if code[..at].ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c)) {
                continue;
            }
            let (mut rest, mut base) = (&code[at..], Vec::new());
            if word == "super::" {
                base = name.trim_end_matches("/mod").split('/').collect();
            }
            while let Some(above) = rest.strip_prefix("super::") {
                base.pop();
                rest = above;
            }
            let base: String = base.iter().flat_map(|module| [*module, "::"]).collect();
            tree(rest.strip_prefix("crate::").unwrap_or(rest), base, &mut all);
        }
    }
    let paths = all.into_iter().map(|path| path.replace("::", "/"));
    paths.map(|path| path.trim_end_matches("/self").trim_end_matches("/*").to_owned()).collect()
}

/// The paths that `room::{a, b::{c, d}}` names, below `base`; what follows it.
fn tree<'a>(code: &'a str, base: String, all: &mut Vec<String>) -> &'a str {
    let end = code.find(|c: char| !(c.is_alphanumeric() || "_:*".contains(c)));
    let (path, mut rest) = code.split_at(end.unwrap_or(code.len()));
    let path = base + path;
    if !(path.is_empty() || path.ends_with("::")) || !rest.starts_with('{') {
        all.push(path.trim_end_matches(':').to_owned());
        return rest;
    }
    while let Some(more) = rest.strip_prefix(['{', ',']) {
        rest = tree(more.trim_start(), path.clone(), all);
        // A new name does not matter.
        rest = &rest[rest.find([',', '}']).unwrap_or(rest.len())..];
    }
    rest.strip_prefix('}').unwrap_or(rest)
}

/// Every source file of the library by its name without suffix, and its text.
fn sources() -> Vec<(String, String)> {
    sources_of("src")
}

/// The same of the files in a folder of the repository.
fn sources_of(folder: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
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
    all.retain(|(name, _)| name != "rooms" && !name.starts_with("rooms/"));
    all
}

#[test]
fn no_room_imports_from_above() {
    let mut wrong = Vec::new();
    for (name, source) in sources() {
        if name == "lib" {
            continue;
        }
        let own = height(&name).unwrap_or_else(|| panic!("src/{name}.rs is in no room"));
        for import in imports(&name, &source) {
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

/// What runs code of users, by kinds: beginnings of names of the server's functions, and the ways
/// to the comparison functions of an index.
const RUNS_CODE: [(&str, &[&str]); 5] = [
    (
        "fold",
        &[
            "pg_sys::BuildDummyIndexInfo",
            "pg_sys::BuildIndexInfo",
            "pg_sys::RelationGetDummyIndexExpressions",
            "pg_sys::RelationGetIndexExpressions",
            "pg_sys::RelationGetIndexPredicate",
            "pg_sys::estimate_expression_value",
            "pg_sys::eval_const_expressions",
            "pg_sys::evaluate_expr",
            "pg_sys::expression_planner",
            "pg_sys::predicate_",
        ],
    ),
    (
        "evaluate",
        &[
            ".evalfunc",
            "Spi::",
            "pg_sys::BuildIndexValueDescription",
            "pg_sys::ExecBuildSlotValueDescription",
            "pg_sys::ExecCheck",
            "pg_sys::ExecEval",
            "pg_sys::ExecIndex",
            "pg_sys::ExecInit",
            "pg_sys::ExecPrepare",
            "pg_sys::ExecProject",
            "pg_sys::ExecQual",
            "pg_sys::ExecReScan",
            "pg_sys::ExecScan",
            "pg_sys::FormIndexDatum",
            // Whatever runs a query connects first.
            "pg_sys::SPI_connect",
            "pg_sys::SPI_cursor",
            "pg_sys::SPI_exec",
            "pg_sys::SPI_prepare",
            "pg_sys::index_build",
            "pg_sys::index_insert",
            "pg_sys::index_rescan",
            "pg_sys::table_index_build",
            "pg_sys::table_index_validate",
            "pg_sys::validate_index",
        ],
    ),
    (
        "estimate",
        &[
            "pg_sys::clause",
            "pg_sys::cost_qual_eval",
            "pg_sys::genericcostestimate",
            "pg_sys::get_join_variables",
            "pg_sys::get_restriction_variable",
            "pg_sys::index_other_operands_eval_cost",
            "fn clauselist_selectivity",
            "fn index_other_operands_eval_cost",
            "pg_sys::join_selectivity",
            "pg_sys::restriction_selectivity",
        ],
    ),
    (
        "call",
        &[
            "pg_sys::CallerFInfoFunctionCall",
            "pg_sys::DirectFunctionCall",
            "pg_sys::DirectInputFunctionCall",
            "pg_sys::FunctionCall",
            "pg_sys::InputFunctionCall",
            "pg_sys::OidFunctionCall",
            "pg_sys::OidInputFunctionCall",
            "pg_sys::OidOutputFunctionCall",
            "pg_sys::OidReceiveFunctionCall",
            "pg_sys::OidSendFunctionCall",
            "pg_sys::OutputFunctionCall",
            "pg_sys::ReceiveFunctionCall",
            "pg_sys::SendFunctionCall",
            "pg_sys::domain_check",
        ],
    ),
    ("compare", &[" KeyRef(", "with_order!("]),
];

/// Whether some code has a name that begins so; of a name of the server, as a function that is
/// called.
fn uses(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let rest =
            code[at + name.len()..].trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
        !name.starts_with("pg_sys::") || rest.starts_with('(')
    })
}

/// The rows of the table "Code of users": file without suffix, and kind.
fn documented() -> BTreeSet<(String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/internals.md");
    let page = fs::read_to_string(page).expect("docs/internals.md is readable");
    let (_, section) = page.split_once("\n## Code of users\n").expect("the section is there");
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut all = BTreeSet::new();
    for row in section.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        for file in cells[2].split(", ").filter(|file| !file.is_empty()) {
            let file = file.trim_matches('`').strip_suffix(".rs").expect("a file");
            all.insert((file.to_owned(), cells[0].to_owned()));
        }
    }
    all
}

/// docs/internals.md names the role with whose rights it runs, for each file and kind.
#[test]
fn code_of_users_runs_where_the_table_says() {
    let mut found = BTreeSet::new();
    for (name, source) in sources() {
        let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
        let code: String = code.flat_map(|line| [line, "\n"]).collect();
        let kinds =
            RUNS_CODE.iter().filter(|(_, names)| names.iter().any(|name| uses(&code, name)));
        found.extend(kinds.map(|(kind, _)| (name.clone(), (*kind).to_owned())));
    }
    let table = documented();
    let missing: Vec<_> = found.difference(&table).collect();
    let stale: Vec<_> = table.difference(&found).collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "\"Code of users\" in docs/internals.md lacks {missing:?} and has too many {stale:?}"
    );
}

/// A scan holds no snapshot of the engine: to it an entry that VACUUM has removed is dead, in
/// whatever term.
#[test]
fn nothing_of_the_server_reads_the_dead() {
    for (name, source) in sources() {
        assert!(!source.contains("set_snapshot_range"), "src/{name}.rs reads dead entries");
    }
}

#[test]
fn imports_are_seen() {
    let source = "use crate::am;\nuse crate::{image::load, pg};\nuse crate::state::{open, handle::{self, A as C, B}, *};\n\
        let x = crate::upkeep::worker::start();\n// crate::planner\nuse crate::{key::{row, desc}, feed};\nuse crate::inspect;\n\
        use super::quals;\nuse super::super::{spans, scan::Scan};\nuse super::super::super::planner::x;\npub(super) fn f() {}";
    let named = [
        [
            "am",
            "image/load",
            "pg",
            "state/open",
            "state/handle",
            "state/handle/A",
            "state/handle/B",
        ]
        .as_slice(),
        &["state", "upkeep/worker/start", "key/row", "key/desc", "feed", "inspect"],
        &["am/build/quals", "am/spans", "am/scan/Scan", "planner/x"],
    ];
    assert_eq!(imports("am/build/share", source), named.concat());
    assert_eq!(imports("key/row", "use super::desc::{A};"), ["key/desc/A"]);
    assert_eq!(imports("am/mod", "use super::planner;"), ["planner"]);
}
