//! [`CrashRecord`]: what a crashing executor leaves in a shared page for its controller.

use serde::{Deserialize, Serialize};

use crate::sync::{MappedU32, MappedU64, Ordering};

/// The record in the page. Zeroes: no crash.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct CrashRecord {
    /// Stored last with Release, which pairs with the Acquire load: who reads a signal reads the rest of its crash.
    signal: MappedU32,
    frame_count: MappedU32,
    address: MappedU64,
    frames: [MappedU64; FRAMES],
}

const FRAMES: usize = 48;

/// A crash, as the executor reported it. Each number may be any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Crash {
    pub(crate) signal: u32,
    pub(crate) address: u64,
    /// The innermost first.
    pub(crate) frames: Vec<u64>,
}

impl CrashRecord {
    #[cfg(test)]
    fn new() -> CrashRecord {
        let frames = std::array::from_fn(|_| MappedU64::new(0));
        CrashRecord { signal: MappedU32::new(0), frame_count: MappedU32::new(0), address: MappedU64::new(0), frames }
    }

    /// Stores a crash. Only atomic stores: this runs in a signal handler.
    pub(crate) fn store(&self, signal: u32, address: u64, frames: &[u64]) {
        self.address.store(address, Ordering::Relaxed);
        for (word, frame) in self.frames.iter().zip(frames) {
            word.store(*frame, Ordering::Relaxed);
        }
        self.frame_count.store(frames.len().min(FRAMES) as u32, Ordering::Relaxed);
        self.signal.store(signal, Ordering::Release);
    }

    /// The crash, if there was one.
    pub(crate) fn load(&self) -> Option<Crash> {
        let signal = self.signal.load(Ordering::Acquire);
        let count = (self.frame_count.load(Ordering::Relaxed) as usize).min(FRAMES);
        let frames = self.frames[..count].iter().map(|frame| frame.load(Ordering::Relaxed)).collect();
        (signal != 0).then(|| Crash { signal, address: self.address.load(Ordering::Relaxed), frames })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_crash_is_read_as_it_was_stored_and_a_count_beyond_the_frames_is_cut() {
        let record = CrashRecord::new();
        assert_eq!(record.load(), None);
        record.store(11, 8, &[1, 2]);
        assert_eq!(record.load(), Some(Crash { signal: 11, address: 8, frames: vec![1, 2] }));
        record.frame_count.store(u32::MAX, Ordering::Relaxed);
        assert_eq!(record.load().unwrap().frames.len(), FRAMES);
        record.store(6, 0, &[7; FRAMES + 1]);
        assert_eq!(record.load().unwrap().frames, [7; FRAMES]);
    }
}
