//! The install scripts of released versions, and the scripts as installed.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::server::program;

/// Versions that this one updates, and their install scripts.
pub const RELEASED: [(&str, &str); 2] = [
    ("0.1.0", include_str!("../../upgrade/nitro--0.1.0.sql")),
    ("0.2.0", include_str!("../../upgrade/nitro--0.2.0.sql")),
];

/// This version of the extension.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The folder in which the server finds scripts of extensions.
pub fn scripts() -> PathBuf {
    let output = Command::new(program("pg_config")).arg("--sharedir").output();
    let output = output.expect("pg_config runs").stdout;
    PathBuf::from(String::from_utf8_lossy(&output).trim()).join("extension")
}

/// Puts a file where the server finds scripts of extensions. Tests that run beside each other may
/// put the same one.
pub fn put_script(name: &str, text: &str) {
    let (own, path) = (format!("{name}.{}", std::process::id()), scripts().join(name));
    let own = scripts().join(own);
    fs::write(&own, text).expect("the folder of scripts can be written");
    fs::rename(&own, path).expect("the folder of scripts can be written");
}

/// Makes the released versions installable.
pub fn put_released() {
    for (version, script) in RELEASED {
        put_script(&format!("nitro--{version}.sql"), script);
    }
}
