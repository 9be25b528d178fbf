//! Build script: passes the git commit to the crate as `SABUL_COMMIT`, for reports.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=../../reproductions");
    println!("cargo:rerun-if-changed=../../.git/HEAD");
    println!("cargo:rerun-if-changed=../../.git/index");
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=SABUL_COMMIT={commit}");
}
