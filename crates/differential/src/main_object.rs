//! The object with `main`, which is the same in every program.
//!
//! `main` calls `run_<id>` of each object that is linked. The references are weak, so that they pull no archive member.
//! Addresses are never printed: `say_address` prints the number of the first address that was equal.

use crate::program::Writer;

/// The greatest number of drawn objects.
pub const OBJECTS_MAX: usize = 5;

pub const SOURCE: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define OBJECT(id) extern void run_##id(void) __attribute__((weak));
OBJECT(0) OBJECT(1) OBJECT(2) OBJECT(3) OBJECT(4)

static void *addresses[512];
static int address_count;

void say(const char *label, unsigned long value) { dprintf(1, "%s = %#lx\n", label, value); }

void say_address(const char *label, void *address) {
    int index = 0;
    if (!address) { dprintf(1, "%s = null\n", label); return; }
    while (index < address_count && addresses[index] != address) index++;
    if (index == address_count && index < 512) addresses[address_count++] = address;
    dprintf(1, "%s = address %d\n", label, index);
}

static void run(int id, void (*function)(void)) {
    if (function) function(); else dprintf(1, "%d linked = no\n", id);
}

static void *run_all(void *unused) {
    run(0, run_0); run(1, run_1); run(2, run_2); run(3, run_3); run(4, run_4);
    return unused;
}

int main(int argc, char **argv) {
    run_all(NULL);
    if (argc > 1 && !strcmp(argv[1], "thread")) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, run_all, NULL) || pthread_join(thread, NULL)) return 2;
    }
    return 40 + address_count % 8;
}
"#;

pub fn writer() -> Writer {
    Writer::C { compiler: "gcc", flags: vec!["-fPIC", "-O1"] }
}
