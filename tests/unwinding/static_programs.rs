//! Programs that are linked statically: the C library that is in them opens windows as any other does, since a window needs
//! no library; and where it cannot open anything (musl), the unwinder is told of windows all the same.

use std::path::Path;
use std::process::Command;

use crate::support::*;

/// A program with the library in it, built statically for a target; what it prints, given an object to panic through.
/// `None` where the target is not installed.
fn run_static(target: &str, object: &[u8]) -> Option<String> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_string());
    let libraries = Command::new(rustc).args(["--print", "target-libdir", "--target", target]).output();
    let is_there = |directory: &str| std::fs::read_dir(directory.trim()).is_ok_and(|entries| entries.count() > 10);
    if !libraries.is_ok_and(|told| is_there(&String::from_utf8_lossy(&told.stdout))) {
        skip(&format!("the Rust target {target}"));
        return None;
    }
    let here = env!("CARGO_MANIFEST_DIR");
    // One place for the package, so that it is built anew only when something has changed.
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("static_programs").join(target);
    let package_dir = built.join("package");
    let package = format!(
        "[package]\nname = \"static-host\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n
         [dependencies]\njittison = {{ path = {here:?} }}\nlibc = \"0.2\"\n"
    );
    std::fs::create_dir_all(package_dir.join("src")).unwrap();
    std::fs::write(package_dir.join("Cargo.toml"), package).unwrap();
    std::fs::write(package_dir.join("src/main.rs"), include_str!("static_host.rs")).unwrap();
    // The same versions, which are at hand.
    std::fs::copy(Path::new(here).join("Cargo.lock"), package_dir.join("Cargo.lock")).unwrap();
    let build = Command::new(env!("CARGO"))
        .args(["build", "--offline", "--target", target, "--manifest-path"])
        .arg(package_dir.join("Cargo.toml"))
        .env("CARGO_TARGET_DIR", &built)
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .output()
        .unwrap();
    assert!(build.status.success(), "{}", String::from_utf8_lossy(&build.stderr));
    let dir = PrivateDir::new();
    std::fs::write(dir.path("object.o"), object).unwrap();
    let program = built.join(target).join("debug/static-host");
    let run = Command::new(program).arg(dir.path("object.o")).output().unwrap();
    let told = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{target}: {told}");
    Some(told)
}

/// Two frames, for which nothing else is needed; and one that has no description.
fn object() -> Option<Vec<u8>> {
    gcc(
        &["-O2", "-fPIC", "-fexceptions"],
        "extern long panics(long);
         __attribute__((noinline)) static long inner(long x) { return panics(x) + 1; }
         long outer(long x) { return inner(x) * 10; }
         __asm__(\".text\\n.globl bare\\n.type bare, @function\\nbare: push %rbx; call *panics@GOTPCREL(%rip); pop %rbx; ret\");",
    )
}

#[test]
fn a_panic_passes_through_linked_frames_of_a_static_program() {
    let Some(object) = object() else { return };
    let Some(told) = run_static("x86_64-unknown-linux-gnu", &object) else { return };
    assert_panics_pass(&told);
}

fn assert_panics_pass(told: &str) {
    for line in [
        "100 panics were caught with the system mapper",
        "100 panics were caught with the single mapper",
        "2 linked frames in a backtrace",
        "-2: ",
        "2000 panics were caught while sessions came and went",
        "100 panics were caught in a forked child",
        "objects that come and go are counted",
    ] {
        assert!(told.contains(line), "{told}");
    }
}

#[test]
fn a_panic_passes_through_linked_frames_of_a_static_program_that_can_open_no_library() {
    let Some(object) = object() else { return };
    let Some(told) = run_static("x86_64-unknown-linux-musl", &object) else { return };
    assert_panics_pass(&told);
}
