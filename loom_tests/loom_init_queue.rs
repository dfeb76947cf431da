//! Model: a lookup that initialises objects races with other lookups, nested lookups, removal and closing.
//!
//! Runs `src/platform/init_queue.rs`, the queue of `src/platform/init_fini.rs`. Each object is initialised once. Every
//! lookup that returns sees its objects initialised. No turn waits for itself. A removed object leaves nothing
//! unfinished.
//!
//! Seeded bugs: `turn_ended_without_release`, `nested_turn_ends_the_outer`, `taken_object_waited_for_by_nobody`,
//! `gone_object_left_unfinished`.

#![cfg(loom)]

mod support;

use std::sync::Arc;

use jittison::platform::{InitQueue, QueuedObject};
use jittison::session::*;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use support::{Fixture, explore};

/// One object of a dylib. Loom reports unordered accesses to its variables.
struct Object {
    dylib: u64,
    key: usize,
    variables: UnsafeCell<u32>,
    /// Whether the dylib has it ready.
    is_ready: AtomicBool,
    /// A dylib in which its initialiser looks up a symbol.
    looks_up: Option<u64>,
}

// SAFETY: loom checks that accesses are ordered. The models exist to check this.
unsafe impl Sync for Object {}
// SAFETY: as above.
unsafe impl Send for Object {}

impl Object {
    fn new(dylib: u64) -> Object {
        let variables = UnsafeCell::new(0);
        Object { dylib, key: 0, variables, is_ready: AtomicBool::new(true), looks_up: None }
    }

    fn write(&self, value: u32) {
        // SAFETY: loom checks that no other thread reads or writes meanwhile.
        self.variables.with_mut(|variables| unsafe { *variables = value });
    }

    fn read(&self) -> u32 {
        // SAFETY: as above.
        self.variables.with(|variables| unsafe { *variables })
    }
}

#[derive(Clone)]
struct Queued(Arc<Object>);

impl QueuedObject for Queued {
    fn dylib(&self) -> u64 {
        self.0.dylib
    }

    fn key(&self) -> usize {
        self.0.key
    }
}

type Queue = Arc<InitQueue<Queued>>;

/// A queue of objects.
fn queue_of<const N: usize>(objects: [Object; N]) -> (Queue, [Arc<Object>; N]) {
    let queue = Queue::new(InitQueue::new());
    let objects = objects.map(Arc::new);
    objects.iter().for_each(|object| queue.push(Queued(object.clone())));
    (queue, objects)
}

/// Initialises the queued objects of a dylib, as a lookup does before it returns. Returns how many it initialised, nested
/// ones included.
fn initialise(queue: &InitQueue<Queued>, dylib: u64) -> usize {
    if queue.is_finished() {
        return 0;
    }
    let Some((token, taken)) = queue.acquire(dylib) else { return 0 };
    let (ready, unready): (Vec<_>, Vec<_>) =
        taken.into_iter().partition(|queued| queued.0.is_ready.load(Ordering::Acquire));
    queue.requeue(unready, 0);
    let mut nested = 0;
    for Queued(object) in &ready {
        assert_eq!(object.read(), 0, "an object is initialised twice");
        nested += object.looks_up.map_or(0, |dylib| initialise(queue, dylib));
        object.write(1);
    }
    queue.release(token, ready.len(), Vec::new());
    nested + ready.len()
}

#[test]
fn two_lookups_that_initialise_one_dylib() {
    let outcomes = [(0, 1), (1, 0)];
    explore("two_lookups_that_initialise_one_dylib", None, 5, outcomes, || {
        let (queue, [object]) = queue_of([Object::new(1)]);
        let (other_queue, other_object) = (queue.clone(), object.clone());
        let other = thread::spawn(move || {
            let ran = initialise(&other_queue, 1);
            assert_eq!(other_object.read(), 1, "a lookup returned before its object was initialised");
            ran
        });
        let here = initialise(&queue, 1);
        assert_eq!(object.read(), 1, "a lookup returned before its object was initialised");
        let there = other.join().unwrap();
        assert!(queue.is_finished() && queue.len() == 0);
        (here, there)
    });
}

#[test]
fn three_lookups_that_initialise_two_dylibs() {
    // Of the two lookups in the first dylib, one finds it initialised.
    let outcomes = [([1, 0], 1), ([0, 1], 1)];
    explore("three_lookups_that_initialise_two_dylibs", Some(2), 5, outcomes, || {
        let (queue, objects) = queue_of([Object::new(1), Object::new(2)]);
        let [first, second] = [(1, objects[0].clone()), (2, objects[1].clone())].map(|(dylib, object)| {
            let queue = queue.clone();
            thread::spawn(move || (initialise(&queue, dylib), object.read()))
        });
        let here = (initialise(&queue, 1), objects[0].read());
        let [first, second] = [first, second].map(|lookup| lookup.join().unwrap());
        assert_eq!((here.1, first.1, second.1), (1, 1, 1), "a lookup returned before its object was initialised");
        assert!(queue.is_finished() && queue.len() == 0);
        ([here.0, first.0], second.0)
    });
}

#[test]
fn lookup_inside_an_initialiser_versus_another_lookup() {
    // Both threads look up in the first dylib. Its initialiser looks up in the second dylib.
    let outcomes = [(2, 0), (0, 2)];
    explore("lookup_inside_an_initialiser_versus_another_lookup", None, 5, outcomes, || {
        let outer = Object { looks_up: Some(2), ..Object::new(1) };
        let (queue, objects) = queue_of([outer, Object::new(2)]);
        let (other_queue, other_object) = (queue.clone(), objects[0].clone());
        let other = thread::spawn(move || {
            let ran = initialise(&other_queue, 1);
            assert_eq!(other_object.read(), 1, "a lookup returned before its object was initialised");
            ran
        });
        let here = initialise(&queue, 1);
        assert_eq!((objects[0].read(), objects[1].read()), (1, 1));
        let there = other.join().unwrap();
        assert!(queue.is_finished() && queue.len() == 0);
        (here, there)
    });
}

#[test]
fn lookups_inside_initialisers_of_two_dylibs_that_look_up_in_each_other() {
    // Each initialiser looks up in the other dylib. The nested lookup initialises the other object, or finds it done.
    let outcomes = [(2, 0), (0, 2)];
    explore("lookups_inside_initialisers_of_two_dylibs_that_look_up_in_each_other", None, 5, outcomes, || {
        let [first, second] =
            [(1, 2), (2, 1)].map(|(dylib, other)| Object { looks_up: Some(other), ..Object::new(dylib) });
        let (queue, _objects) = queue_of([first, second]);
        let other_queue = queue.clone();
        let other = thread::spawn(move || initialise(&other_queue, 2));
        let here = initialise(&queue, 1);
        let there = other.join().unwrap();
        assert!(queue.is_finished() && queue.len() == 0);
        (here, there)
    });
}

#[test]
fn object_that_becomes_ready_versus_a_lookup() {
    // The other lookup finds it ready, or puts it back. The thread that made it ready sees it initialised in every case.
    let outcomes = [(0, 1), (1, 0)];
    explore("object_that_becomes_ready_versus_a_lookup", None, 5, outcomes, || {
        let (queue, [object]) = queue_of([Object { is_ready: AtomicBool::new(false), ..Object::new(1) }]);
        let other_queue = queue.clone();
        let other = thread::spawn(move || initialise(&other_queue, 1));
        object.is_ready.store(true, Ordering::Release);
        let here = initialise(&queue, 1);
        assert_eq!(object.read(), 1, "a lookup returned before its object was initialised");
        let there = other.join().unwrap();
        assert!(queue.is_finished() && queue.len() == 0);
        (here, there)
    });
}

#[test]
fn object_that_is_added_versus_lookups() {
    // The new object is found, or stays queued. The other queued object is initialised by its own lookup.
    let outcomes = [(0, 1), (1, 1)];
    explore("object_that_is_added_versus_lookups", None, 3, outcomes, || {
        let (queue, [neighbour]) = queue_of([Object::new(2)]);
        let added = Arc::new(Object::new(1));
        let (other_queue, new) = (queue.clone(), added.clone());
        let adder = thread::spawn(move || other_queue.push(Queued(new)));
        let ran = (initialise(&queue, 1), initialise(&queue, 2));
        assert_eq!(neighbour.read(), 1, "a lookup returned before its object was initialised");
        adder.join().unwrap();
        assert_eq!((queue.is_finished(), queue.len()), (ran.0 == 1, 1 - ran.0));
        ran
    });
}

#[test]
fn closing_versus_a_lookup() {
    // Closing finalises the object and queues it again. The lookup comes before, or initialises it again: `(ran, queued)`.
    let outcomes = [(0, 1), (1, 0)];
    explore("closing_versus_a_lookup", None, 3, outcomes, || {
        let (queue, [object]) = queue_of([Object::new(1)]);
        initialise(&queue, 1);
        let (other_queue, other_object) = (queue.clone(), object.clone());
        let closing = thread::spawn(move || {
            let token = other_queue.lock(&[1]);
            other_object.write(0);
            other_queue.push(Queued(other_object));
            other_queue.release(token, 0, Vec::new());
        });
        let here = initialise(&queue, 1);
        closing.join().unwrap();
        let queued = queue.len();
        assert_eq!(queue.is_finished(), queued == 0);
        (here, queued)
    });
}

/// Does at removal what `init_fini.rs` does: removes the object from the queue, and finalises it if it was initialised.
struct Finaliser {
    queue: Queue,
    object: Arc<Object>,
    finalised: std::sync::Mutex<usize>,
}

impl ResourceManager for Finaliser {
    fn remove_resources(&self, _: &JitDylib, _: ResourceKey) -> jittison::error::Result<()> {
        self.queue.remove([&Queued(self.object.clone())]);
        if self.object.read() == 1 {
            self.object.write(2);
            *self.finalised.lock().unwrap() += 1;
        }
        Ok(())
    }

    fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {}
}

#[test]
fn lookup_that_initialises_versus_removal() {
    // Initialised and finalised, or neither.
    let outcomes = [(0, 0), (1, 1)];
    explore("lookup_that_initialises_versus_removal", None, 5, outcomes, || {
        let fixture = Fixture::new();
        let (queue, [object]) = queue_of([Object::new(1)]);
        let manager =
            Arc::new(Finaliser { queue: queue.clone(), object: object.clone(), finalised: std::sync::Mutex::new(0) });
        fixture.session.register_manager(manager.clone());
        let tracker = fixture.loaded("main", 1);
        let watch = fixture.reference("main").watch();
        let remover = thread::spawn(move || tracker.remove().unwrap());
        let mut ran = 0;
        if let Some((token, taken)) = queue.acquire(1) {
            match watch.pin() {
                Watched::Ready(pin) => {
                    queue.requeue(Vec::new(), 0);
                    taken.iter().for_each(|queued| queued.0.write(1));
                    ran = taken.len();
                    queue.release(token, taken.len(), Vec::new());
                    drop(pin);
                }
                Watched::Unready => panic!("the symbol was ready"),
                Watched::Gone => {
                    queue.requeue(Vec::new(), taken.len());
                    queue.release(token, 0, Vec::new());
                }
            }
        }
        let _ = remover.join().unwrap();
        assert!(queue.is_finished() && queue.len() == 0, "a removed object left something unfinished");
        let finalised = *manager.finalised.lock().unwrap();
        (ran, finalised)
    });
}
