//! [`EntryHook`]: what is written to hook the entry of a compiled function, so that it jumps elsewhere.

use crate::arch::x86_64::entry_hook as x86_64;
use crate::base::ExecutorAddr;

/// How an entry is hooked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryHook {
    /// Where the jump is written. Nothing runs there.
    pub(crate) jump_at: ExecutorAddr,
    /// The byte that changes last, and its new value. One store.
    pub(crate) switch: (ExecutorAddr, u8),
    /// Where the function begins behind its room: it runs as compiled from here, hooked or not.
    pub(crate) body: ExecutorAddr,
}

impl EntryHook {
    /// See [`Arch::entry_hook`](crate::arch::Arch::entry_hook).
    pub(super) fn of_x86_64(entry: ExecutorAddr, before: &[u8], bytes: &[u8]) -> Option<EntryHook> {
        if !x86_64::is_room(before) {
            return None;
        }
        let offset = x86_64::entry_offset(bytes.get(..x86_64::ENTRY_BYTES)?.try_into().ok()?)?;
        let at = entry.offset(offset);
        let body = at.offset(x86_64::ROOM_AT_ENTRY);
        let jump_at = ExecutorAddr::new(body.value().checked_sub(x86_64::ROOM_BEFORE_ENTRY)?);
        Some(EntryHook { jump_at, switch: (at, x86_64::SHORT_JUMP), body })
    }

    /// The bytes of the jump.
    pub(crate) fn jump(self, target: ExecutorAddr) -> [u8; 14] {
        x86_64::long_jump(target.value())
    }
}

/// Bytes at an entry that tell whether there is room.
pub(crate) const ENTRY_BYTES: u64 = x86_64::ENTRY_BYTES as u64;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const ENTRY: u64 = 0x1000;

    fn hook(bytes: &[u8]) -> Option<EntryHook> {
        EntryHook::of_x86_64(ExecutorAddr::new(ENTRY), &[0x90; 112], bytes)
    }

    #[test]
    fn an_entry_of_gcc_or_clang_with_room_is_hooked_by_one_byte() {
        for (bytes, offset) in [
            ([0x90, 0x90, 0x55, 0x48, 0x89, 0xe5], 0),
            ([0x66, 0x90, 0x55, 0x48, 0x89, 0xe5], 0),
            ([0xf3, 0x0f, 0x1e, 0xfa, 0x90, 0x90], 4),
        ] {
            let hook = hook(&bytes).unwrap();
            let (at, byte) = hook.switch;
            assert_eq!((at.value(), hook.body.value()), (ENTRY + offset, ENTRY + offset + 2));
            // The short jump counts from the body, and its distance is the second byte.
            let distance = i64::from(bytes[offset as usize + 1] as i8);
            assert_eq!((byte, hook.jump_at.value() as i64), (0xeb, hook.body.value() as i64 + distance));
            assert!(hook.jump_at.value() + hook.jump(hook.body).len() as u64 <= ENTRY);
            assert!(hook.jump_at.value() >= ENTRY - 112);
        }
    }

    #[test]
    fn an_entry_without_room_is_not_hooked() {
        assert_eq!(hook(&[0x55, 0x48, 0x89, 0xe5, 0x90, 0x90]), None);
        assert_eq!(hook(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x90]), None);
        assert_eq!(hook(&[0x90, 0x90]), None);
        let (entry, nops) = (ExecutorAddr::new(ENTRY), [0x90; 6]);
        assert_eq!(EntryHook::of_x86_64(entry, &[0x90; 111], &nops), None);
        let mut before = [0x90; 112];
        before[50] = 0xc3;
        assert_eq!(EntryHook::of_x86_64(entry, &before, &nops), None);
    }
}
