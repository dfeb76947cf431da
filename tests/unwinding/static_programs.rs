//! Statically linked programs. With glibc the loader in the program opens windows, because a window depends on no library. With
//! musl there is no `dlopen`, and the unwinder still finds the windows.

use std::path::Path;
use std::process::Command;

use crate::support::*;

/// Builds `static_host.rs` statically for a target, runs it with `object` and returns its output. `None` if the target is not
/// installed.
fn run_static(target: &str, object: &[u8]) -> Option<String> {
    let printed = rustc()?.args(["--print", "target-libdir", "--target", target]).output().unwrap();
    let libraries = std::fs::read_dir(String::from_utf8_lossy(&printed.stdout).trim());
    let is_installed = libraries.is_ok_and(|entries| entries.count() > 10);
    if !require_that(is_installed, &format!("the Rust target {target}")) {
        return None;
    }
    let here = env!("CARGO_MANIFEST_DIR");
    // The directory is the same in each run, so that cargo builds the package only after a change.
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("static_programs").join(target);
    let package_dir = built.join("package");
    let package = format!(
        "[package]\nname = \"static-host\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n
         [dependencies]\nlibc = \"0.2\"\n
         jittison = {{ path = {here:?}, default-features = false, features = [\"unstable\"] }}\n"
    );
    std::fs::create_dir_all(package_dir.join("src")).unwrap();
    std::fs::write(package_dir.join("Cargo.toml"), package).unwrap();
    std::fs::write(package_dir.join("src/main.rs"), include_str!("static_host.rs")).unwrap();
    // The same versions of dependencies, which are available offline.
    std::fs::copy(Path::new(here).join("Cargo.lock"), package_dir.join("Cargo.lock")).unwrap();
    let build = Command::new(env!("CARGO"))
        .args(["build", "--offline", "--target", target, "--manifest-path"])
        .arg(package_dir.join("Cargo.toml"))
        .env("CARGO_TARGET_DIR", &built)
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        // Each build is from scratch or nothing.
        .env("CARGO_INCREMENTAL", "0")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .output()
        .unwrap();
    assert!(build.status.success(), "{}", String::from_utf8_lossy(&build.stderr));
    let dir = PrivateDir::new();
    dir.write("object.o", object);
    let program = built.join(target).join("debug/static-host");
    let run = Command::new(program).arg(dir.path("object.o")).output().unwrap();
    let output = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{target}: {output}");
    Some(output)
}

/// Two functions with unwind tables, `inner` and `outer`, and one without, `bare`.
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
    let Some(output) = run_static("x86_64-unknown-linux-gnu", &object) else { return };
    assert_panics_pass(&output);
}

fn assert_panics_pass(output: &str) {
    for line in [
        "100 panics were caught with the system mapper",
        "100 panics were caught with the single mapper",
        "2 linked frames in a backtrace",
        "-2: ",
        "2000 panics were caught while sessions came and went",
        "100 panics were caught in a forked child",
        "added and removed objects are counted",
    ] {
        assert!(output.contains(line), "{output}");
    }
}

#[test]
fn a_panic_passes_through_linked_frames_of_a_static_program_without_dlopen() {
    let Some(object) = object() else { return };
    let Some(output) = run_static("x86_64-unknown-linux-musl", &object) else { return };
    assert_panics_pass(&output);
}
