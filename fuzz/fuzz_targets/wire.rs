//! Fuzz target: the input is a frame of each side of an executor's connection. It is a message or an error, and what is a message
//! is the same after it was encoded again.

#![no_main]

mod limits;

use libfuzzer_sys::fuzz_target;

use limits::Limits;

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits::start();
    jittison::executor::check_bytes(bytes);
    limits.check(bytes.len());
});
