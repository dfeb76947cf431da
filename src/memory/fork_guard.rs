//! The fork handlers: a forked child gets its own copy of the code memory.
//!
//! Code and constants are mapped twice, so they are shared mappings of a file. Without this file, a child would run the
//! pages of its parent, and they would change when the parent removes code and links other code. With
//! [`ForkPolicy::Snapshot`] the child gets a copy:
//!
//! ```text
//!   thread that forks        prepare: lock, copy files ── fork ──┬── parent: close copies, unlock
//!                                      ▲                         └── child: map copies over views, unlock
//!   other threads       wait_for_forks ┘ wait from here until the parent has unlocked
//! ```
//!
//! # Why the parent copies, before the fork
//!
//! If the child made the copy, the parent could not reuse any memory until the child was ready. If the child died, the
//! parent would wait for ever.
//!
//! Code that is published at the fork is in the copy: every thread calls [`wait_for_forks`] between the write and the
//! publication of its code, and that call waits from the copy to the fork (`fork_gate.rs`). The child has no module
//! that another thread was linking at the fork, because it does not have that thread either.
//!
//! In the child, the handlers only make system calls, on copies that the parent prepared. The copies replace the views
//! at the same addresses, so pointers into windows stay valid. Data pools, and all pools of windows that are mapped
//! once, are private memory: the kernel copies them on write.
//!
//! # Fork handlers of the program
//!
//! The C library calls `prepare` handlers in reverse order of registration, and the `parent` and `child` handlers in
//! order. So a handler that was registered before ours runs while this thread holds the lock. It may link, remove, map
//! windows and fork:
//!
//! | such a handler | what happens |
//! |---|---|
//! | changes code memory in `prepare` | it does not wait; all windows are copied again |
//! | changes code memory in the parent | the same, although the copies are no longer needed |
//! | changes code memory in the child | the copies are mapped over the views before the first write |
//! | forks in `prepare` or in the parent | all windows are copied again, for the inner fork and for the outer one |
//! | forks in the child | the copies are mapped first; the windows are copied for the inner fork, and not after it |
//!
//! # Nested forks
//!
//! [`Fork`] has one [`Stage`] for each fork under way, the innermost last. The kernel copies it to the child. Only the
//! thread that forks touches it.
//!
//! | event | innermost stage | views of this process |
//! |---|---|---|
//! | `prepare` | a new `Prepared` | all mapped, then copied |
//! | in the child: code memory is needed, or `child` | `Prepared` → `Child` | mapped from the copies |
//! | our last handler | removed | mapped |
//! | – the fork around it is `Prepared` | | copied again: its `fork` may still follow, in this process |
//! | – the fork around it is `Child` | | not copied: its `fork` is done |
//!
//! The working views are mapped in the process that has set [`Registry::marker`]. In another process they are missing,
//! and the innermost stage is `Prepared`.
//!
//! # Locks
//!
//! A thread-local variable holds the lock from `prepare` to the end of the fork. It has no destructor, so a fork may
//! happen in any destructor of a thread. Threads that wait for the lock hold no other lock of this library, because a
//! handler may need that one.
//!
//! # Limits
//!
//! - A handler of the program must not wait for another thread that links: that thread waits for the fork.
//! - A handler must not map the first window of the process, because the C library does not call our handlers for a
//!   fork that is already under way.

use std::cell::RefCell;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd};

use smallvec::SmallVec;

use crate::base::{ExecutorAddr, SegmentKind};
use crate::error::MemoryFault;
use crate::memory::fork_gate::{Closed, ForkGate};
use crate::memory::layout::WindowLayout;
use crate::memory::mapper::ForkPolicy;
use crate::memory::process_marker::ProcessMarker;
use crate::memory::window_image::table_pages;
use crate::os::{FileCopy, FileView, Protection, at_fork, map_zeroes};
use crate::sync::{Arc, MappedU32, Ordering, per_process, prepare_barriers, thread_local};

/// The mappings of a window whose code and constants are a shared file.
pub(super) struct SharedWindow {
    /// The running view: the header with the frame table, the code, and the constants.
    running_views: [FileView; 3],
    working_view: u64,
    working_size: usize,
    /// The descriptor from which the running view is mapped. In a child it stands for the copy.
    file: File,
    is_read_only: bool,
    policy: ForkPolicy,
    /// Whether the working view shows other pages than the running view: in a child without a copy. Relaxed: stored while the child has
    /// one thread.
    is_detached: MappedU32,
}

impl SharedWindow {
    /// A window at `base`. `working_view` shows the first `working_size` bytes of `file`.
    ///
    /// # Safety
    /// While the value lives:
    /// - The address ranges of the layout at `base`, and of `working_view`, belong to the window (M7).
    /// - `working_view` is a writable mapping of the first `working_size` bytes of `file` (M4).
    pub(super) unsafe fn new(
        base: ExecutorAddr,
        layout: &WindowLayout,
        (working_view, working_size): (*const u8, usize),
        file: File,
        is_read_only: bool,
        policy: ForkPolicy,
    ) -> SharedWindow {
        let view = |offset: u64, size: u64, protection| FileView {
            address: base.offset(offset).value(),
            offset,
            size_bytes: size as usize,
            protection,
        };
        let (code, constants) = (layout.readable_code(), layout.pool(SegmentKind::ReadOnly));
        SharedWindow {
            running_views: [
                view(0, table_pages(layout), Protection::Read),
                view(code.offset, code.size, Protection::ReadExecute),
                view(constants.offset, constants.size, Protection::Read),
            ],
            working_view: working_view as u64,
            working_size,
            file,
            is_read_only,
            policy,
            is_detached: MappedU32::new(0),
        }
    }

    /// The running view, and the file from which it is mapped.
    pub(super) fn running_views(&self) -> (&[FileView], &File) {
        (&self.running_views, &self.file)
    }

    /// Whether this is a child that has no copy: what it writes to the working view does not reach the running view.
    pub(super) fn is_detached(&self) -> bool {
        self.is_detached.load(Ordering::Relaxed) != 0
    }

    /// A copy of the file. `None` if the child gets none: by policy, in a child without a copy, or if the kernel
    /// refuses.
    fn copy(&self) -> Option<FileCopy> {
        if self.policy == ForkPolicy::Share || self.is_detached() {
            return None;
        }
        // SAFETY: M4, M6 - by the contract of `new`, `working_view` maps the first `working_size` bytes of `file` while
        // `self` lives.
        let copy = unsafe {
            let view = self.working_view as *const u8;
            FileCopy::create(c"jittison", self.file.as_fd(), view, self.working_size as u64, self.is_read_only)
        };
        copy.ok()
    }

    /// Called in the child: maps the copy over the running view and at the address of the working view.
    fn remap_in_child(&self, copy: Option<FileCopy>) {
        // SAFETY: M7 - the addresses of both views, and the descriptor, belong to this window in the child, too.
        // Nothing is mapped at the working view, because the kernel does not pass it to a child (`MADV_DONTFORK`). M4 -
        // the window lives, because the registry holds it. The copy was made of its file, so the running view keeps its
        // bytes.
        let is_remapped = copy.is_some_and(|copy| unsafe {
            copy.remap_in_child(&self.running_views, self.working_view, self.working_size, self.file.as_raw_fd())
        });
        if !is_remapped {
            self.is_detached.store(1, Ordering::Relaxed);
            // SAFETY: M7 - the address range of the working view belongs to this window. If the kernel refuses, nothing
            // is mapped there, and a removal in the child faults.
            unsafe { map_zeroes(self.working_view, self.working_size) };
        }
    }
}

/// All live shared windows of the process.
struct Registry {
    /// Whether the C library has our handlers.
    has_handlers: bool,
    /// Set by the process in which the working views are mapped, from its first fork on.
    marker: ProcessMarker,
    windows: Vec<RegisteredWindow>,
}

struct RegisteredWindow {
    window: Arc<SharedWindow>,
    /// Its copy, during a fork.
    copy: Option<FileCopy>,
}

impl Registry {
    /// Registers our handlers with the C library, once.
    ///
    /// # Errors
    /// If the C library has no memory for them.
    fn add_handlers(&mut self) -> Result<(), MemoryFault> {
        // The C library runs no handler while it registers one. So this does not wait for a handler that waits for our
        // lock.
        self.has_handlers = self.has_handlers || at_fork(prepare, parent, child);
        if !self.has_handlers {
            let problem = "the C library has no memory for the handlers".to_string();
            return Err(MemoryFault::Refused { step: "pthread_atfork".to_string(), problem });
        }
        // Before the first allocation in the window, so before the first light barrier.
        prepare_barriers();
        self.marker.prepare();
        Ok(())
    }

    /// Copies every window, and closes the previous copies.
    fn copy_all(&mut self) {
        for RegisteredWindow { window, copy } in &mut self.windows {
            if let Some(old) = std::mem::replace(copy, window.copy()) {
                old.close();
            }
        }
    }

    fn close_copies(&mut self) {
        self.windows.iter_mut().filter_map(|registered| registered.copy.take()).for_each(FileCopy::close);
    }
}

per_process! {
    static GATE: ForkGate<Registry> =
        ForkGate::new(Registry { has_handlers: false, marker: ProcessMarker::new(), windows: Vec::new() });
}

/// The number of forks between the process that mapped the first window and this process. Relaxed: it changes while the child has one
/// thread.
static FORKS: MappedU32 = MappedU32::new(0);

/// The generation of this process. A child has another one than its parent, and none is zero. A thread that was started
/// in another generation does not exist in this process. Forks count from the first window of our mappers on.
pub(super) fn generation() -> u64 {
    u64::from(FORKS.load(Ordering::Relaxed)) + 1
}

/// The forks under way in this thread, in both processes, from our first handler to our last.
struct Fork {
    registry: Closed<'static, Registry>,
    /// The stages of the forks, the innermost last. There are several while handlers of the program fork. Inline, so
    /// that a child frees no memory.
    stages: SmallVec<[Stage; 16]>,
}

/// How far a fork is, as this process sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The windows are copied. The `fork` may still follow, or this is the parent, or this is the child and the copies
    /// are not mapped yet.
    Prepared,
    /// This is the child, and the copies are mapped.
    Child,
}

impl Fork {
    fn begin() -> Fork {
        let mut registry = GATE.close();
        registry.marker.set();
        Fork { registry, stages: SmallVec::new() }
    }

    /// Called in the child of the innermost fork: maps the copies over the views, once.
    fn remap_in_child(&mut self) {
        if let Some(stage @ Stage::Prepared) = self.stages.last_mut() {
            *stage = Stage::Child;
            self.registry.marker.set();
            FORKS.fetch_add(1, Ordering::Relaxed);
            for RegisteredWindow { window, copy } in &mut self.registry.windows {
                window.remap_in_child(copy.take());
            }
        }
    }

    /// Called before a handler of the program uses code memory. In the child this may be earlier than [`child`].
    fn remap_if_child(&mut self) {
        if !self.registry.marker.is_set() {
            self.remap_in_child();
        }
    }

    /// Called after a handler of the program changed code memory, and after an inner fork. Copies all windows if the
    /// `fork` of the innermost stage may still follow in this process.
    fn copy_again(&mut self) {
        self.remap_if_child();
        if self.stages.last() == Some(&Stage::Prepared) {
            self.registry.copy_all();
        }
    }
}

thread_local! {
    // Without a destructor, so that a fork may happen in any destructor of the thread.
    // loom's `thread_local` takes no `const` block.
    #[allow(clippy::missing_const_for_thread_local)]
    static FORK: ManuallyDrop<RefCell<Option<Fork>>> = ManuallyDrop::new(RefCell::new(None));
}

/// Runs `body` on the fork of this thread. `None` if this thread does not fork.
fn in_own_fork<R>(body: impl FnOnce(&mut Fork) -> R) -> Option<R> {
    FORK.with(|fork| fork.borrow_mut().as_mut().map(body))
}

/// Edits the registry, also if a handler of the program maps or unmaps a window during a fork.
fn with_registry<R>(edit: impl FnOnce(&mut Registry) -> R) -> R {
    let mut edit = Some(edit);
    let mut apply = |registry: &mut Registry| edit.take().map(|edit| edit(registry));
    let edited = in_own_fork(|fork| {
        fork.remap_if_child();
        let edited = apply(&mut fork.registry);
        fork.copy_again();
        edited
    });
    edited
        .flatten()
        .or_else(|| apply(&mut GATE.lock()))
        .unwrap_or_else(|| unreachable!("`edit` runs either in the fork of this thread or under the lock"))
}

/// Registers a window: every fork copies it until [`deregister`].
///
/// # Errors
/// If the C library has no memory for the handlers.
pub(super) fn register(window: &Arc<SharedWindow>) -> Result<(), MemoryFault> {
    with_registry(|registry| {
        registry.add_handlers()?;
        registry.windows.push(RegisteredWindow { window: window.clone(), copy: None });
        Ok(())
    })
}

/// Makes every later fork count for [`generation`], without a window to copy. A mapper of windows that are private
/// memory calls this before its first window: otherwise a child would take the threads of its parent for its own.
///
/// # Errors
/// If the C library has no memory for the handlers.
pub(super) fn count_forks() -> Result<(), MemoryFault> {
    with_registry(Registry::add_handlers)
}

pub(super) fn deregister(window: &Arc<SharedWindow>) {
    with_registry(|registry| {
        let position = registry.windows.iter().position(|other| Arc::ptr_eq(&other.window, window));
        if let Some(copy) = position.and_then(|position| registry.windows.remove(position).copy) {
            copy.close();
        }
    });
}

/// Called before a write to a working view. Does not wait. In a handler of the child, maps the copies first.
#[inline]
pub(super) fn before_writing() {
    if GATE.is_closed() {
        before_writing_in_fork();
    }
}

#[cold]
fn before_writing_in_fork() {
    in_own_fork(Fork::remap_if_child);
}

/// Called after a thread that frees memory wrote to a working view. Does not wait. In a handler of the program, copies
/// all windows again.
#[inline]
pub(super) fn after_writing() {
    if GATE.is_closed() {
        copy_again_in_fork();
    }
}

/// Waits until no fork is under way. Every fork that begins later copies what this thread wrote before the call. If
/// this thread itself forks, and a handler of the program makes the call, it copies all windows again and does not
/// wait.
#[inline]
pub(super) fn wait_for_forks() {
    GATE.pass(copy_again_in_fork);
}

/// As [`wait_for_forks`], but does not wait. Returns false if the caller has to wait.
#[inline]
pub(super) fn is_past_forks() -> bool {
    let mut is_past = true;
    GATE.pass(|| {
        is_past = copy_again_in_fork();
        true
    });
    is_past
}

/// Copies all windows again if this thread forks. Returns whether it does.
#[cold]
fn copy_again_in_fork() -> bool {
    in_own_fork(Fork::copy_again).is_some()
}

extern "C" fn prepare() {
    FORK.with(|fork| {
        let mut fork = fork.borrow_mut();
        let fork = fork.get_or_insert_with(Fork::begin);
        // A child handler that was registered before ours may fork. Its process has no working views yet, and without
        // them the copies would fail.
        fork.remap_if_child();
        fork.stages.push(Stage::Prepared);
        fork.registry.copy_all();
    });
}

extern "C" fn parent() {
    end();
}

extern "C" fn child() {
    in_own_fork(Fork::remap_in_child);
    end();
}

fn end() {
    FORK.with(|fork| {
        let mut fork = fork.borrow_mut();
        let Some(ended) = fork.as_mut() else { return };
        ended.stages.pop();
        ended.registry.close_copies();
        if !ended.stages.is_empty() {
            // A handler of the program forked inside another fork.
            return ended.copy_again();
        }
        if let Some(ended) = fork.take() {
            GATE.open(ended.registry);
        }
    });
}
