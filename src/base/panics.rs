//! Panics of foreign code: caught, put into words, and dropped without another panic.
//!
//! A panic carries a value of the embedder's, whose destructor may panic too. Whoever drops such a value by hand lets that second
//! panic out, in the middle of a removal or of a drop.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What `catch_unwind` returns of a panic.
pub(crate) type Payload = Box<dyn Any + Send>;

/// Runs `body`, which may leave only its own values half-changed. An error is the text of its panic.
pub(crate) fn catch<R>(body: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(body)).map_err(text_of)
}

/// What a panic said. With no lock held: drops the value that it carries.
#[cold]
pub(crate) fn text_of(panic: Payload) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("it gave no reason").to_string();
    discard(panic);
    text
}

/// Drops the value that a panic carries. If that panics, the second value is leaked.
pub(crate) fn discard(panic: Payload) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(second);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_in_its_own_words() {
        assert_eq!(catch(|| 7), Ok(7));
        assert_eq!(catch(|| -> u8 { panic!("plain") }), Err("plain".to_string()));
        assert_eq!(catch(|| -> u8 { panic!("number {}", 7) }), Err("number 7".to_string()));
        assert_eq!(catch(|| -> u8 { std::panic::panic_any(7) }), Err("it gave no reason".to_string()));
    }

    #[test]
    fn a_panic_whose_value_panics_when_dropped_stays_inside() {
        struct Again;
        impl Drop for Again {
            fn drop(&mut self) {
                std::panic::panic_any(Again);
            }
        }
        let caught = catch_unwind(|| catch(|| std::panic::panic_any(Again)));
        assert!(matches!(caught, Ok(Err(_))));
    }
}
