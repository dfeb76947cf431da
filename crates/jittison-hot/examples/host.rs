//! A program of Rust that can be patched in builds with debug assertions. `.ci/hot-release` looks at its symbols.

fn main() {
    jittison_hot::init();
    println!("runs");
}
