//! A section that several objects have, in a forked child: the parts have their places since before the fork, and parent and child
//! each link the rest.

use crate::fork::Child;
use crate::mapping_modes::{jit_of, mapping_modes};
use crate::support::*;

#[test]
fn a_child_and_its_parent_each_link_the_other_parts_of_a_section() {
    own_process!();
    let part = |number: usize| {
        c(&format!(
            "__attribute__((section(\"sets\"), used)) static const long mine = {number};
            long get_{number}(void) {{ return *(const volatile long *)&mine; }}"
        ))
    };
    let reader = c("extern const long __start_sets[], __stop_sets[];
        long digits(void) {
            long digits = 0;
            for (const long *p = __start_sets; p < __stop_sets; p++) digits = digits * 10 + *p;
            return digits;
        }");
    let (Some(one), Some(two), Some(reader)) = (part(1), part(2), reader) else { return };
    for (mapper, _) in mapping_modes() {
        let jit = jit_of(mapper);
        let objects = [("one.o", &one), ("two.o", &two), ("reader.o", &reader)];
        let trackers = objects.map(|(name, object)| add(&jit, jit.main_dylib(), name, object));
        assert_eq!(long(&jit, "get_1"), 1);
        Child::start(|| assert_eq!((long(&jit, "get_2"), long(&jit, "digits")), (2, 12))).succeeds();
        assert_eq!((long(&jit, "digits"), long(&jit, "get_2")), (12, 2));
        // A later child runs what was linked before, and frees it.
        Child::start(|| {
            assert_eq!(long(&jit, "digits"), 12);
            trackers.iter().for_each(|tracker| drop(tracker.remove().unwrap()));
            assert_eq!(held(&jit), (0, 0, 0));
        })
        .succeeds();
        assert_eq!(long(&jit, "digits"), 12);
        trackers.iter().for_each(|tracker| drop(tracker.remove().unwrap()));
        assert_eq!(held(&jit), (0, 0, 0));
    }
}
