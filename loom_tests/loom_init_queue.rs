//! Every interleaving of initialising objects with other lookups, with nested ones, with removal, and with closing.
//!
//! Checks `src/platform/init_queue.rs`, the queue of `src/platform/init_fini.rs`: an object is initialised once; whoever
//! comes back from a lookup sees it initialised; no turn waits for itself; what was removed leaves nothing unfinished.

#![cfg(loom)]

mod support;

use std::sync::Arc;

use jittison::platform::{InitQueue, Waiting};
use jittison::session::*;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use support::{Scene, explore};

/// Stands for the variables of one object. Loom reports accesses that nothing orders.
struct Object {
    dylib: u64,
    variables: UnsafeCell<u32>,
    /// As a lookup is told by the dylib.
    is_ready: AtomicBool,
    /// A dylib that its initialiser looks a symbol up in.
    looks_up: Option<u64>,
}

// SAFETY: loom checks that accesses are ordered, which is what the models are for.
unsafe impl Sync for Object {}
// SAFETY: as above.
unsafe impl Send for Object {}

impl Object {
    fn new(dylib: u64) -> Object {
        let variables = UnsafeCell::new(0);
        Object { dylib, variables, is_ready: AtomicBool::new(true), looks_up: None }
    }

    fn write(&self, value: u32) {
        // SAFETY: loom checks that nobody else reads or writes meanwhile.
        self.variables.with_mut(|variables| unsafe { *variables = value });
    }

    fn read(&self) -> u32 {
        // SAFETY: as above.
        self.variables.with(|variables| unsafe { *variables })
    }
}

#[derive(Clone)]
struct Queued(Arc<Object>);

impl Waiting for Queued {
    fn dylib(&self) -> u64 {
        self.0.dylib
    }
}

type Queue = Arc<InitQueue<Queued>>;

/// A queue in which one object waits for each of `dylibs`.
fn queue_of<const N: usize>(objects: [Object; N]) -> (Queue, [Arc<Object>; N]) {
    let queue = Queue::new(InitQueue::new());
    let objects = objects.map(Arc::new);
    objects.iter().for_each(|object| queue.add(Queued(object.clone())));
    (queue, objects)
}

/// What a lookup does before it returns; how many objects it initialised.
fn initialise(queue: &InitQueue<Queued>, dylib: u64) -> usize {
    if queue.is_finished() {
        return 0;
    }
    let Some((turn, taken)) = queue.take(dylib) else { return 0 };
    let (ready, unready): (Vec<_>, Vec<_>) =
        taken.into_iter().partition(|queued| queued.0.is_ready.load(Ordering::Acquire));
    queue.sort_out(unready, 0);
    let mut nested = 0;
    for Queued(object) in &ready {
        assert_eq!(object.read(), 0, "it is initialised once");
        nested += object.looks_up.map_or(0, |dylib| initialise(queue, dylib));
        object.write(1);
    }
    queue.end(turn, ready.len(), Vec::new());
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
    // Of the two that look into the first dylib, one finds it initialised.
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
    // The other lookup is of the dylib whose initialiser looks into the second one.
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
fn lookups_inside_initialisers_of_two_dylibs_that_look_into_each_other() {
    // Both objects look into the dylib of the other one: the inner lookup has nothing left, or does the other's work.
    let outcomes = [(2, 0), (0, 2)];
    explore("lookups_inside_initialisers_of_two_dylibs_that_look_into_each_other", None, 5, outcomes, || {
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
    // A lookup from elsewhere finds it ready, or puts it back; whoever made it ready sees it initialised in any case.
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
    // The new object is found, or waits; what waits beside it is initialised by whoever looks it up.
    let outcomes = [(0, 1), (1, 1)];
    explore("object_that_is_added_versus_lookups", None, 3, outcomes, || {
        let (queue, [beside]) = queue_of([Object::new(2)]);
        let added = Arc::new(Object::new(1));
        let (other_queue, new) = (queue.clone(), added.clone());
        let adder = thread::spawn(move || other_queue.add(Queued(new)));
        let ran = (initialise(&queue, 1), initialise(&queue, 2));
        assert_eq!(beside.read(), 1, "a lookup returned before its object was initialised");
        adder.join().unwrap();
        assert_eq!((queue.is_finished(), queue.len()), (ran.0 == 1, 1 - ran.0));
        ran
    });
}

#[test]
fn closing_versus_a_lookup() {
    // What closing finalises waits again. A lookup comes before that, or initialises it once more: `(ran, waits)`.
    let outcomes = [(0, 1), (1, 0)];
    explore("closing_versus_a_lookup", None, 3, outcomes, || {
        let (queue, [object]) = queue_of([Object::new(1)]);
        initialise(&queue, 1);
        let (other_queue, other_object) = (queue.clone(), object.clone());
        let closing = thread::spawn(move || {
            let turn = other_queue.enter(&[1]);
            other_object.write(0);
            other_queue.add(Queued(other_object));
            other_queue.end(turn, 0, Vec::new());
        });
        let here = initialise(&queue, 1);
        closing.join().unwrap();
        let waits = queue.len();
        assert_eq!(queue.is_finished(), waits == 0);
        (here, waits)
    });
}

/// What `init_fini.rs` does at removal: takes the object out of the queue, and finalises it if it was initialised.
struct Finalises {
    queue: Queue,
    object: Arc<Object>,
    finalised: std::sync::Mutex<usize>,
}

impl ResourceManager for Finalises {
    fn remove_resources(&self, _: &JitDylib, _: ResourceKey) -> jittison::error::Result<()> {
        self.queue.remove(|queued| Arc::ptr_eq(&queued.0, &self.object));
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
        let scene = Scene::new();
        let (queue, [object]) = queue_of([Object::new(1)]);
        let manager =
            Arc::new(Finalises { queue: queue.clone(), object: object.clone(), finalised: std::sync::Mutex::new(0) });
        scene.session.register_manager(manager.clone());
        let tracker = scene.loaded("main", 1);
        let watch = scene.reference("main").watch();
        let remover = thread::spawn(move || tracker.remove().unwrap());
        let mut ran = 0;
        if let Some((turn, taken)) = queue.take(1) {
            match watch.pin() {
                Watched::Ready(pin) => {
                    queue.sort_out(Vec::new(), 0);
                    taken.iter().for_each(|queued| queued.0.write(1));
                    ran = taken.len();
                    queue.end(turn, taken.len(), Vec::new());
                    drop(pin);
                }
                Watched::Unready => panic!("it was ready"),
                Watched::Gone => {
                    queue.sort_out(Vec::new(), taken.len());
                    queue.end(turn, 0, Vec::new());
                }
            }
        }
        let _ = remover.join().unwrap();
        assert!(queue.is_finished() && queue.len() == 0, "what was removed leaves nothing unfinished");
        let finalised = *manager.finalised.lock().unwrap();
        (ran, finalised)
    });
}
