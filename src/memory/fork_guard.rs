//! Forking with live windows: a forked child gets code memory of its own.
//!
//! Code and constants are shared mappings of a file, because they are mapped twice; so a child would see its code change
//! when the parent removes and links on. [`ForkPolicy::Snapshot`] gives the child a copy:
//!
//! ```text
//!   thread that forks        prepare: lock, copy files ── fork ──┬── parent: forget copies, unlock
//!                                      ▲                         └── child: map copies over views, unlock
//!   other threads          settle ─────┘ waits from here on until the parent's side is done
//! ```
//!
//! The copy is taken before the fork, and by the parent: a copy by the child would have to keep the parent from using
//! memory again for as long as the child takes, or for ever if it dies. What is published at the fork is in the copy,
//! because an allocation is settled before it is published, and [`wait_for_forks`] makes that wait from the copy to the
//! fork (`fork_gate.rs`). A module that another thread is linking at the fork is lost to the child, as that thread is.
//!
//! The child only makes system calls, on what was prepared, at addresses that stay: pointers into windows stay valid.
//! Data pools, and windows mapped once, are private memory, which the kernel copies itself when it is written.
//!
//! # Handlers of the program
//!
//! The C library calls `prepare` handlers in reverse order of registration, and the others in order. So a handler that was
//! registered before ours runs while this thread holds the lock, and may link, remove, map windows or fork:
//!
//! | where | what it does differently |
//! |---|---|
//! | in `prepare`, after ours | it does not wait; what it has changed is copied again |
//! | in the parent, before ours | the same, for nothing |
//! | in the child, before ours | the child's views show its copies before the first byte is written |
//! | it forks | the copies are the inner fork's, and are made again for the outer one |
//!
//! A handler must not wait for another thread that links: that thread waits for the fork. The first window of a process must
//! not be mapped by a handler, since the C library does not call ours for the fork that is under way.
//!
//! The lock is held from `prepare` to the end of the fork by a thread-local variable without a destructor, so that a fork may
//! happen in whichever destructor of a thread. Other threads take no lock while they wait for it, since a handler may need
//! what they hold.

use std::cell::RefCell;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd};

use crate::base::{ExecutorAddr, SegmentKind};
use crate::error::MemoryFault;
use crate::memory::fork_gate::{Closed, ForkGate};
use crate::memory::layout::WindowLayout;
use crate::memory::mapper::ForkPolicy;
use crate::memory::window_image::table_pages;
use crate::os::{FileCopy, FileView, Protection, at_fork, map_zeroes};
use crate::sync::{Arc, MappedU32, Ordering, per_process, prepare_barriers, thread_local};

/// A window whose pages a child would share.
pub(super) struct ForkedView {
    parts: [FileView; 3],
    alias: u64,
    alias_size: usize,
    /// Opened read-only, or as the running view is mapped from it. A child's is its copy.
    file: File,
    is_read_only: bool,
    policy: ForkPolicy,
    is_severed: MappedU32,
}

impl ForkedView {
    /// Of a window at `base`, of which `alias` shows the file's first `alias_size` bytes.
    ///
    /// # Safety
    /// - The address space of the window's layout at `base`, and of `alias`, is the window's as long as the value lives (M7).
    /// - `alias` shows that much of `file`, writable, as long as the value lives (M4).
    pub(super) unsafe fn new(
        base: ExecutorAddr,
        layout: &WindowLayout,
        (alias, alias_size): (*const u8, usize),
        file: File,
        is_read_only: bool,
        policy: ForkPolicy,
    ) -> ForkedView {
        let shown = |offset: u64, size: u64, protection| FileView {
            address: base.offset(offset).value(),
            offset,
            size_bytes: size as usize,
            protection,
        };
        let (code, constants) = (layout.readable_code(), layout.pool(SegmentKind::ReadOnly));
        ForkedView {
            parts: [
                shown(0, table_pages(layout), Protection::Read),
                shown(code.offset, code.size, Protection::ReadExecute),
                shown(constants.offset, constants.size, Protection::Read),
            ],
            alias: alias as u64,
            alias_size,
            file,
            is_read_only,
            policy,
            is_severed: MappedU32::new(0),
        }
    }

    /// What the running view shows, and the file that it is mapped from.
    pub(super) fn shown(&self) -> (&[FileView], &File) {
        (&self.parts, &self.file)
    }

    /// Whether this is a child's view of its parent's window: what is written does not reach the running view.
    pub(super) fn is_severed(&self) -> bool {
        self.is_severed.load(Ordering::Relaxed) != 0
    }

    fn copy(&self) -> Option<FileCopy> {
        if self.policy == ForkPolicy::Share || self.is_severed() {
            return None;
        }
        // SAFETY: M4, M6 - the alias shows the file for as long as the view is registered.
        let copy = unsafe {
            let view = self.alias as *const u8;
            FileCopy::take(c"jittison", self.file.as_fd(), view, self.alias_size as u64, self.is_read_only)
        };
        copy.ok()
    }

    /// In the child.
    fn adopt(&self, copy: Option<FileCopy>) {
        // SAFETY: M4, M7 - the window is registered, so that its range and its descriptor are its own, and the alias did
        // not come along; the copy was made of it.
        let is_whole = copy.is_some_and(|copy| unsafe {
            copy.remap_in_child(&self.parts, self.alias, self.alias_size, self.file.as_raw_fd())
        });
        if !is_whole {
            self.is_severed.store(1, Ordering::Relaxed);
            // SAFETY: M4, M7 - as above. Refused, the address space stays empty, and removals in the child fault.
            unsafe { map_zeroes(self.alias, self.alias_size) };
        }
    }
}

/// Every live view of the process.
struct Registry {
    /// Whether the C library knows the handlers.
    is_armed: bool,
    views: Vec<Registered>,
}

struct Registered {
    view: Arc<ForkedView>,
    /// While a fork is under way.
    copy: Option<FileCopy>,
}

impl Registry {
    /// Copies every view anew.
    fn copy_all(&mut self) {
        for Registered { view, copy } in &mut self.views {
            if let Some(old) = std::mem::replace(copy, view.copy()) {
                old.close();
            }
        }
    }

    fn close_copies(&mut self) {
        self.views.iter_mut().filter_map(|registered| registered.copy.take()).for_each(FileCopy::close);
    }
}

per_process! {
    static GATE: ForkGate<Registry> = ForkGate::new(Registry { is_armed: false, views: Vec::new() });
}

/// How many forks lie between this process and the one that mapped its first window.
static FORKS: MappedU32 = MappedU32::new(0);

/// Another number in a child than in its parent, and never zero: threads of another generation are not this process's.
/// Counted where windows mind forks.
pub(super) fn generation() -> u64 {
    u64::from(FORKS.load(Ordering::Relaxed)) + 1
}

/// A fork under way in this thread, between its first handler and its last, in both processes.
struct Fork {
    registry: Closed<'static, Registry>,
    /// This fork, and those that handlers of the program have begun inside it.
    depth: u32,
    /// The process that forks.
    parent: u32,
    /// In the child: its views show its copies.
    is_adopted: bool,
}

impl Fork {
    fn begin() -> Fork {
        Fork { registry: GATE.close(), depth: 0, parent: std::process::id(), is_adopted: false }
    }

    /// In the child: has its views show its copies.
    fn adopt(&mut self) {
        if !std::mem::replace(&mut self.is_adopted, true) {
            FORKS.fetch_add(1, Ordering::Relaxed);
            for Registered { view, copy } in &mut self.registry.views {
                view.adopt(copy.take());
            }
        }
    }

    /// A handler of the program is about to use code memory. In the child it may come ahead of [`child`].
    fn adopt_if_child(&mut self) {
        if std::process::id() != self.parent {
            self.adopt();
        }
    }

    /// A handler of the program has changed code memory. In the parent the fork may be still to come.
    fn copy_again(&mut self) {
        self.adopt_if_child();
        if !self.is_adopted {
            self.registry.copy_all();
        }
    }
}

thread_local! {
    // No destructor: it is there for a fork in whichever destructor of the thread.
    // loom's `thread_local` takes no `const` block.
    #[allow(clippy::missing_const_for_thread_local)]
    static FORK: ManuallyDrop<RefCell<Option<Fork>>> = ManuallyDrop::new(RefCell::new(None));
}

/// `None` if this thread does not fork.
fn in_own_fork<R>(body: impl FnOnce(&mut Fork) -> R) -> Option<R> {
    FORK.with(|fork| fork.borrow_mut().as_mut().map(body))
}

/// Edits the registry, in a handler of the program, too.
fn with_registry<R>(edit: impl FnOnce(&mut Registry) -> R) -> R {
    let mut edit = Some(edit);
    let mut apply = |registry: &mut Registry| edit.take().map(|edit| edit(registry));
    let edited = in_own_fork(|fork| {
        fork.adopt_if_child();
        let edited = apply(&mut fork.registry);
        fork.copy_again();
        edited
    });
    edited.flatten().or_else(|| apply(&mut GATE.lock())).unwrap_or_else(|| unreachable!("one of the two was called"))
}

/// Has forks mind a view until [`unregister`].
///
/// # Errors
/// When the C library has no room for the handlers.
pub(super) fn register(view: &Arc<ForkedView>) -> Result<(), MemoryFault> {
    with_registry(|registry| {
        // Handlers that are being registered are not being run, so that this waits for nobody who waits for the lock.
        registry.is_armed = registry.is_armed || at_fork(prepare, parent, child);
        if !registry.is_armed {
            let problem = "the C library has no room for handlers".to_string();
            return Err(MemoryFault::Refused { step: "pthread_atfork".to_string(), problem });
        }
        // Ahead of the first allocation in the view.
        prepare_barriers();
        registry.views.push(Registered { view: view.clone(), copy: None });
        Ok(())
    })
}

pub(super) fn unregister(view: &Arc<ForkedView>) {
    with_registry(|registry| {
        let gone = registry.views.iter().position(|other| Arc::ptr_eq(&other.view, view));
        if let Some(copy) = gone.and_then(|gone| registry.views.remove(gone).copy) {
            copy.close();
        }
    });
}

/// Called before a working view is written. Waits for nobody.
#[inline]
pub(super) fn before_writing() {
    if GATE.is_closed() {
        before_writing_in_fork();
    }
}

#[cold]
fn before_writing_in_fork() {
    in_own_fork(Fork::adopt_if_child);
}

/// Called after a working view was written by whoever frees memory. Waits for nobody.
#[inline]
pub(super) fn after_writing() {
    if GATE.is_closed() {
        copy_again_in_fork();
    }
}

/// Waits until no fork is under way. What this thread wrote before is in the copy of every fork that begins after it; of its
/// own fork, if a handler of the program comes here.
#[inline]
pub(super) fn wait_for_forks() {
    GATE.pass(copy_again_in_fork);
}

/// As [`wait_for_forks`], but does not wait: false if the caller has to.
#[inline]
pub(super) fn is_past_forks() -> bool {
    let mut is_past = true;
    GATE.pass(|| {
        is_past = copy_again_in_fork();
        true
    });
    is_past
}

/// Whether it is this thread that forks.
#[cold]
fn copy_again_in_fork() -> bool {
    in_own_fork(Fork::copy_again).is_some()
}

extern "C" fn prepare() {
    FORK.with(|fork| {
        let mut fork = fork.borrow_mut();
        let fork = fork.get_or_insert_with(Fork::begin);
        fork.depth += 1;
        fork.registry.copy_all();
    });
}

extern "C" fn parent() {
    end();
}

extern "C" fn child() {
    in_own_fork(Fork::adopt);
    end();
}

fn end() {
    FORK.with(|fork| {
        let mut fork = fork.borrow_mut();
        let Some(ended) = fork.as_mut() else { return };
        ended.depth -= 1;
        if ended.depth > 0 {
            // The fork of a handler. The one around it is still to come, in this process.
            (ended.parent, ended.is_adopted) = (std::process::id(), false);
            return ended.registry.copy_all();
        }
        ended.registry.close_copies();
        if let Some(ended) = fork.take() {
            GATE.open(ended.registry);
        }
    });
}
