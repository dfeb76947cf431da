//! `Jit::locate` names the linked functions of a backtrace.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};

use jittison::Jit;
use jittison::base::ExecutorAddr;

use crate::support::*;

unsafe extern "C" {
    fn _Unwind_Backtrace(visit: extern "C" fn(*mut c_void, *mut c_void) -> c_int, addresses: *mut c_void) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> u64;
}

extern "C" fn visit(frame: *mut c_void, _: *mut c_void) -> c_int {
    // SAFETY: the unwinder passes a valid frame.
    let address = unsafe { _Unwind_GetIP(frame) };
    // A return address belongs to the instruction before it.
    SEEN.with_borrow_mut(|seen| seen.push(ExecutorAddr::new(address.saturating_sub(1))));
    0
}

thread_local! {
    static SEEN: RefCell<Vec<ExecutorAddr>> = const { RefCell::new(Vec::new()) };
}

extern "C" fn capture() {
    SEEN.with_borrow_mut(Vec::clear);
    // SAFETY: `visit` has the signature that the unwinder calls.
    unsafe { _Unwind_Backtrace(visit, std::ptr::null_mut()) };
}

const SOURCE: &str = "extern void capture(void); static long own(long x) __attribute__((noinline));
    long inner(long x) { return own(x) * 2; } long outer(long x) { return inner(x) + 3; }
    long test(void) { return outer(4) + 0; }
    static long own(long x) { capture(); return x + 1; }";

fn linked_module(jit: &Jit) -> Option<jittison::ResourceTracker> {
    define_function(jit, jit.main_dylib(), "capture", capture as extern "C" fn());
    let flags = ["-O1", "-fPIC", "-fno-optimize-sibling-calls", "-fno-inline", "-fno-toplevel-reorder"];
    Some(add(jit, jit.main_dylib(), "named.o", &gcc(&flags, SOURCE)?))
}

/// The locations of the linked frames in the last capture, innermost first.
fn locations(jit: &Jit) -> Vec<String> {
    let located = jit.locate(&SEEN.with_borrow(Vec::clone));
    located.into_iter().flatten().map(|location| location.to_string()).collect()
}

#[test]
fn a_backtrace_names_the_linked_functions_that_it_goes_through() {
    let jit = new_jit();
    let Some(tracker) = linked_module(&jit) else { return };
    assert_eq!(long(&jit, "test"), 13);
    let names = locations(&jit);
    let starts: Vec<&str> = names.iter().map(|name| name.split('+').next().unwrap()).collect();
    assert_eq!(starts, ["code of named.o", "inner", "outer", "test"], "{names:?}");
    assert!(names[1].ends_with(" in named.o of dylib `main`"), "{names:?}");
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(locations(&jit), Vec::<String>::new(), "removed code has no name");
}

#[test]
fn locate_names_the_edges_of_functions_and_nothing_outside_linked_code() {
    let jit = new_jit();
    let Some(_tracker) = linked_module(&jit) else { return };
    let [inner, outer] = ["inner", "outer"].map(|name| jit.address_of(jit.main_dylib(), name).unwrap());
    let name_and_offset = |address: u64| {
        let located = jit.locate(&[ExecutorAddr::new(address)]).pop().unwrap()?;
        located.function.map(|(name, offset)| (name.to_string(), offset))
    };
    assert_eq!(name_and_offset(inner.value()), Some(("inner".to_string(), 0)));
    assert_eq!(name_and_offset(outer.value()), Some(("outer".to_string(), 0)));
    assert!(name_and_offset(outer.value() - 1).is_none_or(|(name, _)| name != "outer"));
    assert_eq!(name_and_offset(0), None);
    assert_eq!(name_and_offset(u64::MAX), None);
    assert_eq!(name_and_offset(capture as *const () as u64), None, "a function of the host");
    assert!(jit.locate(&[]).is_empty());
}

#[test]
fn locate_does_not_name_removed_functions_at_reused_addresses() {
    let jit = new_jit();
    let Some(tracker) = linked_module(&jit) else { return };
    assert_eq!(long(&jit, "test"), 13);
    tracker.remove().unwrap();
    let Some(other) = gcc(&["-O1", "-fPIC"], "long other(long x) { return x * 31 + 7; } char pad[400] = { 1 };") else {
        return;
    };
    let _other = add(&jit, jit.main_dylib(), "other.o", &other);
    let address = jit.address_of(jit.main_dylib(), "other").unwrap();
    let location = jit.locate(&[address]).pop().unwrap().unwrap();
    assert_eq!(location.to_string(), "other+0x0 in other.o of dylib `main`");
    assert!(locations(&jit).iter().all(|name| !name.contains("named.o")));
}

#[test]
fn locate_names_functions_beside_objects_without_code() {
    let (Some(data), Some(code)) =
        (c("long only_data = 7;"), c("__asm__(\".text\\n .skip 600000, 0x90\"); long big(long n) { return n; }"))
    else {
        return;
    };
    let jit = Jit::builder().window_size(16 << 20).build().unwrap();
    let link = |object: &[u8], symbol: &str, number: usize| {
        let dylib = jit.create_dylib(&format!("{symbol}{number}")).unwrap();
        add(&jit, &dylib, "one.o", object);
        jit.address_of(&dylib, symbol)
    };
    // The code of such an object has the start of the code pool as its address, and no bytes.
    for number in 0..8 {
        link(&data, "only_data", number).unwrap();
    }
    // Until the code pool is full, so that an object has its code at the start of the pool.
    let functions: Vec<_> = (0..100).map_while(|number| link(&code, "big", number).ok()).collect();
    assert!((2..100).contains(&functions.len()), "{}", functions.len());
    for (number, location) in jit.locate(&functions).into_iter().enumerate() {
        assert_eq!(location.map(|location| location.dylib.to_string()), Some(format!("big{number}")));
    }
}
